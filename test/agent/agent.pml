/* SPDX-License-Identifier: Apache-2.0 */
/* The protocol of docs/design/managed.md between a replayed graph, the threads of an agent, one up and DOWNS down, and
 * its watchdog, with the same words and flags as runtime/agent/Agent.cpp.
 *
 * One step: page X is evicted, page Y is prefetched into its place and read, then Y's value is dead and is discarded.
 * The next thing that touches Y is a write, and before that Y is populated: prefetched, for it has no page any more.
 * Replays follow one another at any rate.
 *
 *   REPLAYS   how many
 *   DOWNS     how many threads there are for evictions
 *   HINT      nobody waits for the prefetch
 *   DIES      a thread of the agent may stop for ever, also within a prefetch or an eviction
 *
 * Each of these breaks a rule, and must be found out:
 *   RELEASE_DISCARDS, DISCARD_BESIDE_PREFETCHES, WAIT_FOR_POPULATE_ALONE, NO_WATCHDOG, DONE_BEFORE_DISCARD
 */
#ifndef REPLAYS
#define REPLAYS 3
#endif

#ifndef DOWNS
#define DOWNS 1
#endif

#define EVICT 0
#define PREFETCH 1
#define DISCARD 2
#define POPULATE 3
#define OPERATIONS 4

bit request[OPERATIONS];
bit done[OPERATIONS];
bool underWay[OPERATIONS];
bool moving[OPERATIONS]; /* the driver is at it: seen by the assertions alone */
bool ended;

#define busy(op) (request[op] || underWay[op])

/* One thread takes a request, or finds that it may not. */
inline take(op, got) {
  bool mayTake;
  got = false;
  mayTake = request[op]; /* who only asks must not seem to be under way */
  if
  :: mayTake -> atomic { mayTake = !underWay[op]; underWay[op] = true }
  :: !mayTake
  fi;
  if
  :: mayTake ->
     atomic { got = request[op]; request[op] = 0 }
     if
     :: !got -> underWay[op] = false
     :: got
     fi
  :: !mayTake
  fi
}

inline signal(op) {
  done[op] = 0;
  request[op] = 1
}

inline carryOut(op) {
  assert(!moving[op]); /* by another thread, from the replay before */
  moving[op] = true;
  /* Undefined, says the driver's manual. */
  assert(!((moving[PREFETCH] || moving[POPULATE]) && moving[DISCARD]));
#ifdef DIES
  if
  :: true
  :: op != DISCARD -> goto dead
  fi;
#endif
#ifdef DONE_BEFORE_DISCARD
  done[op] = 1;
  moving[op] = false;
#else
  moving[op] = false;
  done[op] = 1;
#endif
  underWay[op] = false
}

active proctype graph() {
  byte replay = 0;
  do
  :: replay == REPLAYS -> break
  :: else ->
     signal(EVICT);
     signal(PREFETCH);
#ifndef HINT
     done[PREFETCH] == 1;
#endif
     assert(!moving[DISCARD]); /* Y is read */
     signal(DISCARD);
     signal(POPULATE);
#ifndef WAIT_FOR_POPULATE_ALONE
     done[DISCARD] == 1;
#endif
     done[POPULATE] == 1;
     assert(!moving[DISCARD]); /* Y is written */
     replay++
  od;
  ended = true
}

inline carryOutIfTaken(op) {
  take(op, got);
  if
  :: got -> carryOut(op) /* beside an eviction that is asked for again, perhaps: no harm */
  :: !got
  fi
}

active proctype up() {
  bool got;
end:
  do
  :: request[PREFETCH] && !busy(EVICT) -> carryOutIfTaken(PREFETCH)
#ifndef DISCARD_BESIDE_PREFETCHES
  :: request[DISCARD] -> carryOutIfTaken(DISCARD)
#endif
  :: request[POPULATE] && !busy(DISCARD) -> carryOutIfTaken(POPULATE)
#ifdef DIES
  :: true -> goto dead
#endif
  od;
dead:
  skip
}

active [DOWNS] proctype down() {
  bool got;
end:
  do
  :: request[EVICT] -> carryOutIfTaken(EVICT)
#ifdef DISCARD_BESIDE_PREFETCHES
  :: request[DISCARD] -> carryOutIfTaken(DISCARD)
#endif
#ifdef DIES
  :: true -> goto dead
#endif
  od;
dead:
  skip
}

#ifndef NO_WATCHDOG
/* It may step in at any time: patience is no part of what makes it right. */
active proctype watchdog() {
  bool got;
  byte op = 0;
  do
  :: ended -> break
  :: else ->
     take(op, got);
     if
     :: got -> done[op] = 1; underWay[op] = false
#ifdef RELEASE_DISCARDS
     :: !got && underWay[op] -> done[op] = 1
     :: else
#else
     :: !got && underWay[op] && op != DISCARD -> done[op] = 1
     :: else
#endif
     fi;
     op = (op + 1) % OPERATIONS
  od
}
#endif

ltl noHang { <> ended }
