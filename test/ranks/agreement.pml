/* SPDX-License-Identifier: Apache-2.0 */
/* Decisions that ranks take alike (docs/design/ranks-agreement.md), with the calls of the store in the order of
 * runtime/python/pumpgraph/ranks.py: decide(), _wait(), _late_outcome(), _write(), _forget().
 *
 * Ranks decide again and again, whatever the decision was: a program may catch an error and go on. Any rank may refuse,
 * and a time-out may end a wait at any time, so that slow ranks are in it too.
 *
 *   ROUNDS   how many decisions, up to two
 *   DIES     one rank may stop for ever, between any two calls; rank 1 alone refuses then, for fewer states
 *
 * Each of these breaks a rule, and must be found out:
 *   OVERWRITES, OWN_OUTCOME, NO_TIMEOUT, DELETES_AT_ONCE, DELETES_AFTER_ANY
 */
#ifndef ROUNDS
#define ROUNDS 2
#endif

#define RANKS 3

#define NONE 0
#define GO 1
#define REFUSE 2  /* all have voted */
#define REFUSED 3 /* one has refused and waited for nobody */
#define LATE 4    /* votes were missing when time was up */

#define isComplete(decided) (decided == GO || decided == REFUSE)

/* The store. */
byte vote[6];
byte decision[2];
bool deleted[2];

byte followed[2]; /* the decision that the first rank went by */
bool died;
byte ended;

#define own(r) (round * RANKS + r)
#define refuses(r) (vote[own(r)] == REFUSE)
#define allVoted (vote[own(0)] != NONE && vote[own(1)] != NONE && vote[own(2)] != NONE)
#define anyRefuses (refuses(0) || refuses(1) || refuses(2))

inline mayDie() {
#ifdef DIES
  if
  :: true
  :: atomic { !died -> died = true }; goto dead
  fi
#else
  skip
#endif
}

inline write(come) {
  mayDie();
  atomic {
    assert(!deleted[round]);
#ifdef OVERWRITES
    decision[round] = come;
    decided = come
#else
    if
    :: decision[round] == NONE -> decision[round] = come
    :: else
    fi;
#ifdef OWN_OUTCOME
    decided = come
#else
    decided = decision[round]
#endif
#endif
  }
}

/* Votes do not change, so that it is the same to read them at once. */
inline writeOutcome() {
  d_step {
    assert(!deleted[round]);
    come = GO;
    if
    :: anyRefuses -> come = REFUSE
    :: else
    fi
  }
  write(come)
}

inline waitForDecision() {
  if
  :: decision[round] != NONE -> decided = decision[round]
#ifndef NO_TIMEOUT
  :: true ->
     mayDie();
     /* One vote after the other: one that was missing may come meanwhile. */
     come = GO;
     d_step { assert(!deleted[round]); if :: vote[own(0)] == NONE -> come = LATE :: else fi }
     d_step { assert(!deleted[round]); if :: vote[own(1)] == NONE -> come = LATE :: else fi }
     d_step { assert(!deleted[round]); if :: vote[own(2)] == NONE -> come = LATE :: else fi }
     if
     :: come == LATE -> write(LATE)
     :: else -> writeOutcome()
     fi
#endif
  fi
}

/* No two ranks go by different decisions. */
inline act() {
  d_step {
    if
    :: followed[round] == NONE -> followed[round] = decided
    :: else
    fi;
    assert(followed[round] == decided);
    assert(!(decided == GO && anyRefuses));
    come = NONE
  }
}

inline delete(past) {
  d_step {
    deleted[past] = true;
    vote[past * RANKS] = NONE;
    vote[past * RANKS + 1] = NONE;
    vote[past * RANKS + 2] = NONE;
    decision[past] = NONE
  }
}

inline forget() {
  if
#if defined(DELETES_AT_ONCE)
  :: me == 0 -> delete(round)
#elif defined(DELETES_AFTER_ANY)
  :: me == 0 && round > 0 -> delete(round - 1)
#else
  :: me == 0 && isComplete(decided) ->
     past = 0;
     do
     :: past < round -> delete(past); past++
     :: else -> break
     od
#endif
  :: else
  fi
}

proctype rank(byte me) {
  byte round = 0;
  byte come, decided, past;
  do
  :: round == ROUNDS -> break
  :: else ->
     mayDie();
     if
     :: true ->
        d_step { assert(!deleted[round]); vote[own(me)] = GO };
        mayDie();
        if
        :: allVoted -> writeOutcome()
        :: else -> waitForDecision()
        fi
#ifdef DIES
     :: me == 1 ->
#else
     :: true ->
#endif
        d_step { assert(!deleted[round]); vote[own(me)] = REFUSE };
        write(REFUSED)
     fi;
     act();
     mayDie();
     forget();
     atomic { decided = NONE; past = 0; round++ }
  od;
dead:
  ended++
}

init {
  atomic {
    run rank(0);
    run rank(1);
    run rank(2)
  }
}

ltl noneWaits { <> (ended == RANKS) }
