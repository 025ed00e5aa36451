// SPDX-License-Identifier: GPL-2.0

//! Calling the CPUs of a group.

use super::{
    slice::{
        Slice,
        View,
        CALLED,
        READY, //
    },
    CallGroup,
    Header,
    Work, //
};
use crate::{
    kapi::{
        completion::Waited,
        csd::Called,
        regs, //
    },
    logic::in_flight::Abandon,
};
use core::mem::ManuallyDrop;
use kernel::{
    sync::atomic::Relaxed, //
};

/// How the CPUs were called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dispatched {
    /// Calls to other CPUs.
    pub(crate) remote: u32,
    /// Rounds on this CPU.
    pub(crate) local: u32,
    /// Operations performed by those.
    pub(crate) local_ops: u32,
}

/// What a CPU's last round was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Worked {
    /// The CPU's number.
    pub(crate) cpu: u32,
    /// For how long it has worked, in TSC cycles.
    pub(crate) cycles: u64,
    /// How many operations it did not come to that [`Flight::take_called`] has named.
    pub(crate) left_out: u32,
}

impl Dispatched {
    /// The slice's CPU was this one: the round is through, in the caller's own time.
    fn count_local<W: Work>(&mut self, slice: &Slice<W>) {
        slice.busy.set(0);
        let ops = slice.done.get().wrapping_sub(slice.stable.get());
        self.local = self.local.wrapping_add(1);
        self.local_ops = self.local_ops.wrapping_add(ops);
    }

    /// Whether any CPU was called.
    pub(crate) fn called(self) -> bool {
        self.remote != 0 || self.local != 0
    }
}

/// A group whose CPUs are being called.
///
/// # Invariants
///
/// `waiting` says whether a notice will come (or has come) that was not consumed yet: handlers
/// held shares when the caller dropped its own.
pub(crate) struct Flight<W: Work> {
    pub(super) group: ManuallyDrop<CallGroup<W>>,
    pub(super) waiting: bool,
}

impl<W: Work> Flight<W> {
    fn header(&self) -> &Header<W> {
        self.group.header()
    }

    fn slices(&self) -> &[Slice<W>] {
        // SAFETY: That many are initialised by the invariant of `CallGroup`. Handlers only take
        // shared references too; the fields that change are atomic or cells, used as the
        // invariant of `Slice` says.
        unsafe {
            core::slice::from_raw_parts(self.group.at(self.header().layout.slices), self.group.used)
        }
    }

    /// Calls every CPU that has operations left and is not being called, all of them at once.
    ///
    /// The CPU that the caller is on works last, so that the others work in the meantime; it needs
    /// no call.
    pub(crate) fn dispatch(&mut self) -> Dispatched {
        let mut counts = Dispatched::default();
        let here = regs::current_cpu();
        let is_remote = |s: &&Slice<W>| s.wants_call() && s.cpu != here;
        let calls = self.slices().iter().filter(is_remote).count();
        if calls > 0 {
            if self.header().in_flight.begin(calls as u32) && self.waiting {
                // The last handler of an earlier round has crossed, and tells us now or already
                // has.
                self.header().done.wait();
            }
            // A slice wants another call as soon as its handler is through with a round. Such
            // slices are for the next dispatch: this one took shares for those it has counted.
            for slice in self.slices().iter().filter(is_remote).take(calls) {
                self.call(slice, &mut counts);
            }
        }
        let is_local = |s: &&Slice<W>| s.wants_call() && s.cpu == here;
        if let Some(slice) = self.slices().iter().find(is_local) {
            // If the caller has moved in the meantime, the slice is for the next dispatch.
            let through = regs::with_irqs_off(|now| {
                (now == here).then(|| {
                    slice.stable.set(slice.done.get());
                    slice.run_round(None);
                })
            });
            if through.is_some() {
                counts.count_local(slice);
            }
        }
        if calls > 0 {
            self.waiting = !self.header().in_flight.leave();
        }
        counts
    }

    /// Calls the CPU of a slice that wants it; a share was taken for that.
    fn call(&self, slice: &Slice<W>, counts: &mut Dispatched) {
        slice.stable.set(slice.done.get());
        slice.asked.set(slice.next_round());
        slice.untold.set(true);
        slice.state.store(CALLED, Relaxed);
        // SAFETY: The csd is not locked, since the state was ready. The share keeps the memory
        // until the handler has dropped it, and `run_slice()` is for hard interrupts.
        match unsafe { slice.csd.call(slice.cpu) } {
            Ok(Called::Remote) => counts.remote = counts.remote.wrapping_add(1),
            Ok(Called::Local) => {
                slice.untold.set(false);
                counts.count_local(slice);
            }
            Err(_) => {
                slice.state.store(READY, Relaxed);
                slice.untold.set(false);
                slice.asked.set(0);
                slice.lost.set(true);
                self.header().in_flight.cancel();
            }
        }
    }

    /// Whether every operation is through.
    pub(crate) fn is_complete(&self) -> bool {
        let mut slices = self.slices().iter();
        slices.all(|s| s.is_ready() && s.done.get() == s.len)
    }

    /// Whether some CPU that is not being called has operations left.
    pub(crate) fn wants_dispatch(&self) -> bool {
        self.slices().iter().any(|s| s.wants_call())
    }

    /// The other CPUs that [`Self::dispatch`] would call, unless the caller moves.
    pub(crate) fn cpus_to_call(&self) -> impl Iterator<Item = u32> + '_ {
        let here = regs::current_cpu();
        let wanting = self.slices().iter().filter(|s| s.wants_call());
        wanting.map(|s| s.cpu).filter(move |&cpu| cpu != here)
    }

    /// The other CPUs that were called since this was last asked, with how many operations each performs
    /// in that round at most.
    pub(crate) fn take_called(&mut self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let called = self.slices().iter().filter(|s| s.untold.replace(false));
        called.map(|s| (s.cpu, s.asked.get()))
    }

    /// What each other CPU has done that is not being called and has worked since this was last asked.
    pub(crate) fn take_busy(&mut self) -> impl Iterator<Item = Worked> + '_ {
        let ready = self.slices().iter().filter(|s| s.is_ready());
        let worked = |s: &Slice<W>| Worked {
            cpu: s.cpu,
            cycles: s.busy.replace(0),
            left_out: {
                let performed = s.done.get().wrapping_sub(s.stable.get());
                s.asked.get().saturating_sub(performed)
            },
        };
        ready.map(worked).filter(|worked| worked.cycles != 0)
    }

    /// How many CPUs this is about.
    pub(crate) fn cpus(&self) -> u32 {
        self.group.used as u32
    }

    /// The CPU's number, if this is about one only.
    pub(crate) fn only_cpu(&self) -> Option<u32> {
        match self.slices() {
            [slice] => Some(slice.cpu),
            _ => None,
        }
    }

    /// Whether a CPU that is being called is virtual, and its host runs something else.
    pub(crate) fn is_called_cpu_preempted(&self) -> bool {
        let mut called = self.slices().iter().filter(|s| !s.is_ready());
        called.any(|s| regs::is_vcpu_preempted(s.cpu))
    }

    /// Whether a CPU has another round to do, or may come to have one while another is being called. If
    /// not, a notice comes when there is something to do again.
    pub(crate) fn may_need_rounds(&self) -> bool {
        let calls = || self.slices().iter().filter(|s| !s.is_ready());
        // A CPU that becomes ready while this looks is seen by the second look, if not by the first.
        calls().count() > 1 && calls().any(|s| s.len.wrapping_sub(s.stable.get()) > 1)
            || self.wants_dispatch()
    }

    /// Consumes the notice that all calls are through if it is there. Does not sleep.
    pub(crate) fn try_wait(&mut self) -> bool {
        if self.waiting && self.header().done.try_wait() {
            self.waiting = false;
        }
        !self.waiting
    }

    /// Sleeps until all calls are through, a fatal signal is pending, or `deadline_ns` of the
    /// monotonic clock, if it is given.
    pub(crate) fn wait(&mut self, deadline_ns: Option<u64>) -> Waited {
        if !self.waiting {
            return Waited::Done;
        }
        let waited = self.header().done.wait_killable(deadline_ns);
        if waited == Waited::Done {
            self.waiting = false;
        }
        waited
    }

    /// What has become of every CPU's operations, in the order of the plan; and the operations in
    /// the caller's order.
    pub(crate) fn views(&mut self) -> (impl Iterator<Item = View<'_, W>>, &mut [W::Op]) {
        let staged = self.group.at(self.header().layout.staged);
        // SAFETY: Initialised and of that length by the invariant of `CallGroup`; no handler uses
        // them, and the views below do not reach them.
        let staged = unsafe { core::slice::from_raw_parts_mut(staged, self.header().capacity.ops) };
        (self.slices().iter().map(Slice::view), staged)
    }

    /// Ends the flight if all calls are through. Otherwise abandons it.
    #[inline(never)]
    pub(crate) fn into_group(mut self) -> Option<CallGroup<W>> {
        let through = self.settle();
        // SAFETY: The flight is forgotten, so that its field is moved out of it once; if it has
        // been handed over, it is not used at all.
        //
        // INVARIANT: No call is in flight and no notice is left, as `settle()` says.
        let group = through.then(|| unsafe { ManuallyDrop::take(&mut self.group) });
        core::mem::forget(self);
        group
    }

    /// Comes to an end with the handlers: either all of them are through and the group is the
    /// caller's again, or it is handed over to the last of them.
    fn settle(&mut self) -> bool {
        if !self.waiting {
            return true;
        }
        // INVARIANT: Either the notice is consumed below, or the flight is used no more.
        self.waiting = false;
        let header = self.header();
        header.reaper.expect_one();
        match header.in_flight.abandon() {
            Abandon::HandedOver => false,
            Abandon::Through => {
                header.reaper.release();
                header.done.wait();
                true
            }
        }
    }
}

impl<W: Work> Drop for Flight<W> {
    fn drop(&mut self) {
        if self.settle() {
            // SAFETY: No call is in flight, and the group is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.group) };
        }
    }
}
