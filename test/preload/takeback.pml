/* SPDX-License-Identifier: Apache-2.0 */
/* How calls of several threads get past a plan in force (docs/design/launcher.md), with the words of
 * runtime/preload/Hooks.h and Shim.cpp: perform(), Outside, stepAside(), nextEvent().
 *
 * A round has three events; a value is away from its address between the first and the last of them. One thread runs the
 * loop and leaves it at any time. Another one makes calls of its own, a third captures, and a fourth, or a library that
 * the driver opens within a call, makes the shim step aside.
 *
 *   LIBRARY   the one that steps aside holds the lock
 *
 * Each of these breaks a rule, and must be found out:
 *   NO_COUNT, COUNT_NO_CAPTURED, ASIDE_FIRST, ASIDE_LOCKS, NO_TAKE_BACK, INSTALL_ASIDE
 */
#define EVENTS 3
#define NOBODY 255

byte owner = NOBODY; /* of the lock */
bool aside;          /* standing */
bool pending;        /* a reason for stepping aside */
bool inForce;
byte phase;     /* of the next event */
bool away;      /* a value is not at its address */
byte inDriver;  /* calls without the lock, as counted */
byte reaching;  /* such calls, as they are */
byte captures;

inline lock() {
  assert(owner != _pid); /* it would wait for itself */
  atomic { owner == NOBODY -> owner = _pid }
}

inline unlock() {
  owner = NOBODY
}

inline takeBack() {
  if
  :: inForce -> away = false; inForce = false
  :: else
  fi
}

inline stepAsideNow() {
#ifdef ASIDE_FIRST
  aside = true;
  takeBack()
#else
  takeBack();
  aside = true
#endif
}

inline stepAside() {
  if
#ifndef ASIDE_LOCKS
  :: owner == _pid -> pending = true
#endif
  :: else -> lock(); stepAsideNow(); unlock()
  fi
}

inline nextEvent() {
  if
  :: pending -> pending = false; stepAsideNow()
  :: else
  fi;
  if
#ifdef INSTALL_ASIDE
  :: captures == 0 && !inForce && inDriver == 0 ->
#else
  :: !aside && captures == 0 && !inForce && inDriver == 0 ->
#endif
     assert(reaching == 0); /* memory is mapped anew */
     inForce = true;
     phase = 0
  :: else
  fi
}

/* A call that no plan expects is in the driver. */
inline issue() {
  reaching++;
  assert(!away && !inForce);
  assert(!away && !inForce);
  reaching--
}

inline enters() {
#ifdef NO_COUNT
  skip
#else
  inDriver++
#endif
}

inline leaves() {
#ifdef NO_COUNT
  skip
#else
  inDriver--
#endif
}

inline perform(isExpected) {
  if
  :: aside -> issue()
  :: else ->
     lock();
     nextEvent();
     if
     :: aside -> unlock(); issue()
     :: else ->
        isCaptured = captures > 0;
        if
        :: isCaptured || (inForce && isExpected)
        :: else ->
#ifdef NO_TAKE_BACK
           skip
#else
           takeBack()
#endif
        fi;
        if
        :: inForce ->
           assert(isExpected && !isCaptured);
#ifdef LIBRARY
           if
           :: !aside && !pending -> stepAside()
           :: true
           fi;
#endif
           away = phase != EVENTS - 1;
           phase = (phase + 1) % EVENTS;
           unlock()
        :: !inForce ->
#ifdef COUNT_NO_CAPTURED
           if
           :: isCaptured -> unlock(); issue()
           :: else -> enters(); unlock(); issue(); lock(); leaves(); unlock()
           fi
#else
           enters();
           unlock();
           issue();
           lock();
           leaves();
           unlock()
#endif
        fi
     fi
  fi
}

active proctype loop() {
  bool isCaptured;
  byte left = 2 * EVENTS;
  do
  :: left > 0 ->
     left--;
     if
     :: true -> perform(true)
     :: true -> perform(false)
     fi
  :: left == 0 -> break
  od
}

active proctype other() {
  bool isCaptured;
  perform(false);
  perform(false)
}

/* Outside, around the beginning of a capture. */
active proctype capture() {
  if
  :: aside
  :: else ->
     lock();
     nextEvent();
     takeBack();
     enters();
     unlock();
     reaching++;
     assert(!inForce);
     reaching--;
     lock();
     captures++;
     unlock();
     lock();
     leaves();
     unlock();
     lock();
     captures--;
     unlock()
  fi
}

#ifndef LIBRARY
active proctype shares() {
  stepAside()
}
#endif
