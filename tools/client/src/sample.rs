// SPDX-License-Identifier: GPL-2.0

//! A sample: a copy of what was in a slot at one time.

use crate::error::OpError;
use crate::op::{Op, Reading};
use crate::uapi;
use std::time::Duration;

/// Words of a slot before its results, and of each of those.
pub(crate) const HEADER_WORDS: usize = size_of::<uapi::cpupeek_slot>() / 8;
pub(crate) const RESULT_WORDS: usize = size_of::<uapi::cpupeek_result>() / 8;

/// A CPU's sample.
#[derive(Clone, Debug)]
pub struct Sample {
    words: Vec<u64>,
    ops: Vec<Op>,
}

impl Sample {
    /// Room for a sample of these operations, which have no answers.
    pub(crate) fn empty(ops: &[Op]) -> Self {
        let results = ops.len().saturating_mul(RESULT_WORDS);
        Sample {
            words: vec![0; results.saturating_add(HEADER_WORDS)],
            ops: ops.to_vec(),
        }
    }

    pub(crate) fn words_mut(&mut self) -> &mut [u64] {
        &mut self.words
    }

    fn word(&self, index: usize) -> u64 {
        self.words.get(index).copied().unwrap_or(0)
    }

    /// Whether there is a sample, or why not.
    pub fn status(&self) -> Result<(), OpError> {
        match self.word(1) as u32 as i32 {
            0 => Ok(()),
            status => Err(OpError::from_errno(status.saturating_neg())),
        }
    }

    /// The sample's number, 1 for the CPU's first, 0 if there is none.
    pub fn number(&self) -> u64 {
        self.word(2)
    }

    /// The CPU's time stamp counter before the first register.
    pub fn tsc(&self) -> u64 {
        self.word(3)
    }

    /// `CLOCK_MONOTONIC` then.
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.word(4))
    }

    /// How old it is; `None` if there is none.
    pub fn age(&self) -> Option<Duration> {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let seconds = u64::try_from(now.tv_sec).ok()?;
        let now = Duration::new(seconds, u32::try_from(now.tv_nsec).ok()?);
        (self.number() != 0).then(|| now.saturating_sub(self.time()))
    }

    /// Periods without a sample so far because the timer came too late.
    pub fn missed(&self) -> u64 {
        self.word(5)
    }

    /// Periods without a sample so far because of what sampling has cost.
    pub fn skipped(&self) -> u64 {
        self.word(6)
    }

    /// For how many cycles of its time stamp counter the CPU has worked for the sampler so far.
    pub fn busy(&self) -> u64 {
        self.word(7)
    }

    /// The registers' values, in the order in which they were given.
    pub fn results(&self) -> impl ExactSizeIterator<Item = Result<Reading, OpError>> + '_ {
        self.ops.iter().enumerate().map(|(i, op)| {
            let first = i.saturating_mul(RESULT_WORDS).saturating_add(HEADER_WORDS);
            let word = |i: usize| self.word(first.saturating_add(i));
            let mut op = *op;
            op.take_answer(&uapi::cpupeek_result {
                status: word(0) as u32 as i32,
                cpu: (word(0) >> 32) as u32,
                tsc: word(1),
                __bindgen_anon_1: uapi::cpupeek_result__bindgen_ty_1 {
                    __bindgen_anon_1: uapi::cpupeek_result__bindgen_ty_1__bindgen_ty_1 {
                        eax: word(2) as u32,
                        ebx: (word(2) >> 32) as u32,
                        ecx: word(3) as u32,
                        edx: (word(3) >> 32) as u32,
                    },
                },
            });
            op.result()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(words: Vec<u64>, ops: Vec<Op>) -> Sample {
        Sample { words, ops }
    }

    #[test]
    fn words_are_decoded() {
        let ops = vec![Op::msr(3, 0x10), Op::cpuid(3, 1, 0), Op::msr(3, 0x11)];
        let io = u64::from((-5i32) as u32);
        let words = vec![
            3 << 32 | 8,
            3 << 32,
            7,
            1000,
            2_000_000_000,
            1,
            2,
            99,
            3 << 32,
            1001,
            42,
            0,
            3 << 32,
            1002,
            2 << 32 | 1,
            4 << 32 | 3,
            3 << 32 | io,
            0,
            0,
            0,
        ];
        let sample = sample(words, ops);
        assert_eq!((sample.number(), sample.tsc()), (7, 1000));
        assert_eq!(sample.time(), Duration::from_secs(2));
        assert_eq!(
            (sample.missed(), sample.skipped(), sample.busy()),
            (1, 2, 99)
        );
        assert_eq!(sample.status(), Ok(()));
        let results: Vec<_> = sample.results().collect();
        assert_eq!(
            results[0].map(|reading| (reading.cpu, reading.tsc)),
            Ok((3, 1001))
        );
        assert_eq!(
            results[1].map(|reading| reading.value),
            Ok(crate::Value::Cpuid(crate::CpuidRegs {
                eax: 1,
                ebx: 2,
                ecx: 3,
                edx: 4
            }))
        );
        assert_eq!(results[2], Err(OpError::Hardware));
    }

    #[test]
    fn no_sample_says_why() {
        let nodata = u64::from((-61i32) as u32);
        let empty = sample(vec![0, nodata, 0, 0, 0, 0, 0, 0], vec![]);
        assert_eq!(empty.status(), Err(OpError::NoSample));
        assert_eq!(empty.age(), None);
        assert_eq!(sample(vec![], vec![]).number(), 0);
    }
}
