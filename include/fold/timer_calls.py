"""The calls of a fold with named timers.

At one instant events come first, then the timeout, then the timers in the order of their names,
then the end of the state.
"""

from collections.abc import Iterable
from typing import Any

from include.fold.admission import NEVER_US
from include.fold.calls import Call, Calls
from include.fold.emitted import KeyRun
from include.fold.failures import TimeoutPace
from include.fold.rejecting import RejectingCalls
from include.fold.states import end_us
from include.fold.timers import TIMERS, TimedGroupState


class TimerCalls(Calls):
    """Those of a fold that the first failed call stops."""

    def fold_all(self, runs: Iterable[KeyRun]) -> None:
        """The calls for all of these keys."""
        for run in runs:
            self.group.begin_key(self._states.beside(TIMERS, run.key))
            self.one_per_event_timeout_and_end(run)
            self._states.put_beside(TIMERS, run.key, self.group.stored_timers())

    def _wake(self, timeout_us: int, before_us: int, call: Call) -> int:
        group, pace = self.group, TimeoutPace()
        while True:
            end = end_us(self._fold.ttl_us, group.getOption, group.clock_us)
            call_us = min(timeout_us, group.first_timer_us)
            if min(call_us, end) >= before_us:
                return timeout_us
            if end < call_us:
                self._returned = None
                group.begin_key(None)
                group.begin_call(None, end)
                timeout_us = NEVER_US
                continue
            if call_us < timeout_us:
                group.fire_timer()
            group.begin_call(group.getOption, call_us, timed_out=True)
            call(iter(()))
            timeout_us = group.timeout_at_us
            pace.fired(call_us, min(timeout_us, group.first_timer_us))


class RejectingTimerCalls(RejectingCalls):
    """Those of a fold that rejects. A rejected call leaves the timers as they were; one that was
    made by a timer has fired it."""

    group: TimedGroupState[Any]

    def _fold_run(self, run: KeyRun) -> None:
        self.group.begin_key(self._states.beside(TIMERS, run.key))
        super()._fold_run(run)
        self._states.put_beside(TIMERS, run.key, self.group.stored_timers())

    def _fire(self, before_us: int) -> None:
        group, pace = self.group, TimeoutPace()
        while True:
            end = end_us(self._fold.ttl_us, self._state, self._touched_us)
            call_us = min(self._timeout_us, group.first_timer_us)
            if min(call_us, end) >= before_us:
                return
            if end < call_us:
                group.begin_key(None)
                self._end(end)
                continue
            if call_us < self._timeout_us:
                group.fire_timer()
            else:
                self._timeout_us = NEVER_US
            self._call(call_us, ())
            pace.fired(call_us, min(self._timeout_us, group.first_timer_us))

    def _call(self, clock_us: int, events: tuple[Any, ...]) -> None:
        before, rejected = self.group.stored_timers(), len(self._rejected)
        super()._call(clock_us, events)
        if len(self._rejected) > rejected:
            self.group.begin_key(before)
