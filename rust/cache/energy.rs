// SPDX-License-Identifier: GPL-2.0

//! Energy counters, which cores, dies and packages share, counted along while somebody wants them.

use crate::logic::energy::{
    Accumulator,
    Unit, //
};
use kernel::prelude::*;

/// Which counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Id {
    /// Register.
    pub(super) reg: u32,
    /// The core, die or package.
    pub(super) shared_by: u64,
}

struct Record {
    id: Id,
    unit: Unit,
    counted: Accumulator,
    /// Counted along until then, in milliseconds.
    until_ms: u64,
}

/// All counters that anybody has ever asked for. They outlast the CPUs that they are read on.
pub(super) struct Energy(KVec<Record>);

impl Energy {
    pub(super) const fn new() -> Self {
        Self(KVec::new())
    }

    fn find(&mut self, id: Id) -> Option<&mut Record> {
        self.0.iter_mut().find(|record| record.id == id)
    }

    /// Somebody reads a counter: it is counted along until `until_ms`. Returns whether it was read
    /// from the CPU so lately that it need not be now.
    pub(super) fn want(
        &mut self,
        id: Id,
        unit: Unit,
        now_ms: u64,
        until_ms: u64,
        max_age_ms: u64,
    ) -> Result<bool> {
        if let Some(record) = self.find(id) {
            record.until_ms = until_ms;
            let updated = record.counted.updated_ms();
            return Ok(updated.is_some_and(|then| now_ms.saturating_sub(then) < max_age_ms));
        }
        self.0.push(
            Record {
                id,
                unit,
                counted: Accumulator::default(),
                until_ms,
            },
            GFP_KERNEL,
        )?;
        Ok(false)
    }

    /// Whether a counter was never read from the CPU since somebody wanted it first.
    pub(super) fn is_new(&mut self, id: Id) -> bool {
        let record = self.find(id);
        record.is_some_and(|record| record.counted.updated_ms().is_none())
    }

    /// A counter was read from the CPU. It does not matter if nobody wants it.
    pub(super) fn update(&mut self, id: Id, counter: u32, now_ms: u64) {
        if let Some(record) = self.find(id) {
            if now_ms <= record.until_ms {
                record.counted.update(counter, now_ms, record.unit);
            }
        }
    }

    /// The energy in microjoules.
    pub(super) fn take(&mut self, id: Id) -> Option<u64> {
        let record = self.find(id)?;
        record.counted.take(record.unit)
    }

    /// Whether a counter is wanted, and was not read from the CPU for half of what is allowed.
    pub(super) fn is_due(&mut self, id: Id, now_ms: u64) -> bool {
        self.find(id).is_some_and(|record| {
            let updated = record.counted.updated_ms().unwrap_or(0);
            now_ms <= record.until_ms
                && now_ms.saturating_sub(updated) >= record.unit.shortest_wrap_ms() / 4
        })
    }

    /// How soon to look after the counters that are wanted: half of the shortest time that one of
    /// them can wrap in.
    pub(super) fn tick_ms(&self, now_ms: u64) -> Option<u64> {
        let wanted = self.0.iter().filter(|record| now_ms <= record.until_ms);
        wanted.map(|record| tick_ms(record.unit)).min()
    }
}

/// How soon to look after a counter with this unit.
pub(super) fn tick_ms(unit: Unit) -> u64 {
    unit.shortest_wrap_ms() / 2
}
