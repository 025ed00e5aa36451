// SPDX-License-Identifier: GPL-2.0

//! A thread on the caller's CPU that wants to run every millisecond, and how late it is.

use crate::guest::{Contender, HOME};
use crate::record::quantile;
use crate::sys;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// What kind of thread it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Fifo,
    Ordinary,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Ordinary => "ordinary",
        }
    }
}

const PERIOD_NS: u64 = 1_000_000;

/// How often each reader has its turn, and how long that is.
const ROUNDS: usize = 5;
const TURN: Duration = Duration::from_millis(150);

struct Neighbour {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<f64>, String>>,
}

impl Neighbour {
    fn start(kind: Kind) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let thread = thread::spawn(move || live(kind, &told));
        Self { stop, thread }
    }

    fn stop(self) -> Result<Vec<f64>, String> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread
            .join()
            .map_err(|_| "the neighbour has died".to_owned())?
    }
}

/// Wants to run every period, until told to stop; says how late it was each time.
fn live(kind: Kind, stop: &AtomicBool) -> Result<Vec<f64>, String> {
    let fail = |error| format!("a thread cannot be a neighbour: {error}");
    sys::pin(HOME).map_err(fail)?;
    sys::without_timer_slack();
    if kind == Kind::Fifo {
        sys::become_fifo().map_err(fail)?;
    }
    let mut late = Vec::new();
    let mut next = sys::now_ns() + PERIOD_NS;
    while !stop.load(Ordering::Relaxed) {
        sys::sleep_until(next);
        let now = sys::now_ns();
        late.push(now.saturating_sub(next) as f64);
        // Periods that are missed altogether are one lateness, not many.
        next = now + PERIOD_NS;
    }
    Ok(late)
}

/// How late, at the 90th percentile, a neighbour is beside each of the readers, and beside `none`.
pub fn watch(kind: Kind, contenders: &mut [Contender]) -> Result<Vec<(String, f64)>, String> {
    let mut late: Vec<(String, Vec<f64>)> = ["none"]
        .into_iter()
        .chain(contenders.iter().map(|contender| &*contender.key.case))
        .map(|case| (case.to_owned(), Vec::new()))
        .collect();
    for _ in 0..ROUNDS {
        for (who, (_, late)) in late.iter_mut().enumerate() {
            let contender = who.checked_sub(1).and_then(|at| contenders.get_mut(at));
            if let Some(contender) = &contender {
                contender.budget.set()?;
            }
            let neighbour = Neighbour::start(kind);
            let result = occupy(contender);
            late.extend(neighbour.stop()?);
            result?;
        }
    }
    let p90 = |(case, late): (String, Vec<f64>)| (case, quantile(&late, 0.9));
    Ok(late.into_iter().map(p90).collect())
}

/// Reads for the length of a turn, or does nothing.
fn occupy(contender: Option<&mut Contender>) -> Result<(), String> {
    let end = sys::now_ns() + TURN.as_nanos() as u64;
    match contender {
        None => sys::sleep_until(end),
        Some(contender) => {
            while sys::now_ns() < end {
                contender.sweep()?;
            }
        }
    }
    Ok(())
}
