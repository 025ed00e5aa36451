// SPDX-License-Identifier: GPL-2.0

//! What the workers have done, in memory that outlives them.

use cpupeek_selftests::sys::Pages;

/// What a worker counts.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub enum Count {
    /// Commands and other things that it has done.
    Actions,
    /// Operations in commands that it has begun.
    Begun,
    /// Those in commands that have come to an end.
    Ended,
    /// Answers, by status.
    Answered,
    RefusedRegisters,
    RefusedCpus,
    Losses,
    Timeouts,
    /// Named values read, which the module reads registers for by itself.
    Values,
}

const COUNTS: usize = Count::Values as usize + 1;
const SLOT: usize = 128;

/// Each worker writes in its own slot alone, so that nothing is lost.
pub struct Board {
    pages: Pages,
    workers: usize,
}

impl Board {
    pub fn new(workers: usize) -> Self {
        const { assert!(COUNTS * 8 <= SLOT) };
        let pages = ((workers + 1) * SLOT).div_ceil(cpupeek_selftests::sys::PAGE);
        Self {
            pages: Pages::new(pages, true),
            workers,
        }
    }

    /// Tells the workers to end.
    pub fn stop(&self) {
        self.pages.write(0, 1u64);
    }

    pub fn is_stopped(&self) -> bool {
        self.pages.read::<u64>(0) != 0
    }

    fn place(worker: usize, count: Count) -> usize {
        (worker + 1) * SLOT + count as usize * 8
    }

    pub fn add(&self, worker: usize, count: Count, n: u64) {
        let place = Self::place(worker, count);
        self.pages.write(place, self.pages.read::<u64>(place) + n);
    }

    pub fn sum(&self, count: Count) -> u64 {
        let of = |worker| self.pages.read::<u64>(Self::place(worker, count));
        (0..self.workers).map(of).sum()
    }
}
