// SPDX-License-Identifier: GPL-2.0

//! `cpupeek sample`: some registers of some CPUs, again and again, from a sampler of the module's.

use crate::args::SampleArgs;
use crate::cpus::{self, Selection};
use crate::read::operations;
use crate::terminal::can_be_drawn_on;
use crate::{Failure, Outcome};
use cpupeek_client::{
    Device, OpError, Past, Precision, Register, Sample, Sampler, SamplerOptions, Slot, Value,
};
use serde::Serialize;
use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

/// Intervals that samplers can have.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(3600);

/// Nobody reads faster than that, and files are written in larger pieces.
const SHORTEST_LOOK: Duration = Duration::from_millis(100);

/// Whoever gets every sample gets it that soon, however far apart they are.
const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// How much later than wanted a look at the ring may come.
const LOOKS_IN_RING: u128 = 16;

/// Largest ring of one CPU, and of all together, in bytes; the module's limits.
const MAX_RING: usize = 65_536;
const MAX_MAP: usize = 64 << 20;

/// One CPU, and what was seen of it.
struct Reader<'a> {
    slot: Slot<'a>,
    sample: Sample,
    /// Number of the next sample.
    next: u64,
}

pub fn run(out: &mut impl Write, device: &Device, args: &SampleArgs) -> Result<Outcome, Failure> {
    let info = device.info();
    if !info.has_sampler() {
        let message = "this module has no samplers: install the module of this program's version";
        return Err(Failure::System(message.into()));
    }
    if !(SHORTEST..=LONGEST).contains(&args.interval) {
        let message = "samples can be 1 ms to 1 h apart: give --interval a time like 10ms or 1s";
        return Err(Failure::Usage(message.into()));
    }
    if args.regs.len() > info.max_round_ops as usize {
        return Err(Failure::Usage(format!(
            "{} registers are too many: a CPU samples {} at most",
            args.regs.len(),
            info.max_round_ops
        )));
    }
    let cpus = match &args.on.cpu {
        Selection::All => cpus::present(info.nr_cpu_ids).map_err(Failure::System)?,
        Selection::List(list) => list.expand(info.nr_cpu_ids).map_err(Failure::Usage)?,
    };
    let registers: Vec<_> = args.regs.iter().copied().map(Register::Msr).collect();
    let ops = operations(&registers, &cpus, args.disturb)?;
    let streams = args.json || args.csv;
    let look = look(args.interval, streams);
    let options = SamplerOptions {
        interval: args.interval,
        precision: if args.exact {
            Precision::Exact
        } else {
            Precision::Deferrable
        },
        ring_samples: if streams {
            ring(look, args.interval, cpus.len(), args.regs.len())
        } else {
            0
        },
    };
    let sampler = device.sample(&ops, &options)?;
    follow(out, &sampler, args, look)
}

/// How often the ring, or the latest samples for a table, are looked at.
fn look(interval: Duration, streams: bool) -> Duration {
    let look = interval.max(SHORTEST_LOOK);
    if streams {
        look.min(LONGEST_LOOK)
    } else {
        look
    }
}

/// When the last look is due, after `count` intervals. A sample that comes at their very end is to be seen.
fn last_look(interval: Duration, count: u64, streams: bool) -> Duration {
    let end = interval.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
    if streams {
        end.saturating_add(interval.min(SHORTEST_LOOK))
    } else {
        end
    }
}

/// How many samples are to be kept for each CPU, so that none is lost before the next look.
fn ring(look: Duration, interval: Duration, cpus: usize, regs: usize) -> u32 {
    let per_look = look.as_nanos().div_ceil(interval.as_nanos().max(1));
    let wanted = usize::try_from(per_look.saturating_mul(LOOKS_IN_RING)).unwrap_or(usize::MAX);
    let slot = regs.saturating_mul(32).saturating_add(128);
    let room = MAX_MAP / cpus.saturating_mul(slot).max(1);
    let size = wanted.min(room.saturating_sub(2)).clamp(1, MAX_RING);
    u32::try_from(size).unwrap_or(1)
}

/// Shows samples until enough intervals are over.
fn follow(
    out: &mut impl Write,
    sampler: &Sampler,
    args: &SampleArgs,
    look: Duration,
) -> Result<Outcome, Failure> {
    let mut readers: Vec<Reader<'_>> = sampler
        .slots()
        .map(|slot| Reader {
            slot,
            sample: slot.sample(),
            next: 1,
        })
        .collect();
    let streams = args.json || args.csv;
    let end = args
        .count
        .map(|count| last_look(sampler.interval(), count, streams));
    if args.csv {
        write_titles(out, &args.regs)?;
    }
    let live = can_be_drawn_on();
    let (start, mut due) = (Instant::now(), Duration::ZERO);
    let mut lost = 0u64;
    let mut failed = false;
    for round in 0u64.. {
        if streams {
            for reader in &mut readers {
                lost = lost.saturating_add(reader.drain(out, args)?);
            }
        } else {
            if round > 0 && live {
                write!(out, "\x1b[H\x1b[J")?;
            } else if round > 0 {
                writeln!(out)?;
            }
            write_table(out, &mut readers)?;
        }
        out.flush()?;
        failed = readers.iter_mut().any(Reader::has_failed);
        if end.is_some_and(|end| due >= end) {
            break;
        }
        // A look that came late does not make the next ones hurry.
        due = due.saturating_add(look).max(start.elapsed());
        due = end.map_or(due, |end| due.min(end.max(start.elapsed())));
        thread::sleep(due.saturating_sub(start.elapsed()));
    }
    if lost > 0 {
        // The numbers of the samples show where.
        let _ = writeln!(
            io::stderr(),
            "cpupeek: {lost} samples were lost because this program was too slow: sample fewer registers or less often"
        );
    }
    Ok(if failed || lost > 0 {
        Outcome::SomeFailed
    } else {
        Outcome::AllRead
    })
}

impl Reader<'_> {
    /// Whether something of the latest sample could not be read. An idle CPU has none yet.
    fn has_failed(&mut self) -> bool {
        self.slot.read(&mut self.sample);
        let bad = |error: &OpError| *error != OpError::NoSample;
        let status = self.sample.status().err();
        let errors = self.sample.results().filter_map(Result::err);
        status.into_iter().chain(errors).any(|error| bad(&error))
    }

    /// Writes all samples that are new. Returns how many were lost.
    fn drain(&mut self, out: &mut impl Write, args: &SampleArgs) -> io::Result<u64> {
        let mut lost = 0u64;
        loop {
            // The first one is of the beginning, so that one more may come in as many intervals.
            if args.count.is_some_and(|count| self.next > count) {
                return Ok(lost);
            }
            match self.slot.past(self.next, &mut self.sample) {
                Past::NotYet => return Ok(lost),
                Past::There => {
                    if args.json {
                        write_json(out, self.slot.cpu(), &args.regs, &self.sample)?;
                    } else {
                        write_csv(out, self.slot.cpu(), &self.sample)?;
                    }
                    self.next = self.next.saturating_add(1);
                }
                Past::Overrun { oldest } => {
                    let oldest = oldest.max(self.next.saturating_add(1));
                    lost = lost.saturating_add(oldest.saturating_sub(self.next));
                    self.next = oldest;
                }
            }
        }
    }
}

fn msr(value: Value) -> u64 {
    match value {
        Value::Msr(value) => value,
        Value::Cpuid(regs) => regs.eax.into(),
    }
}

fn write_titles(out: &mut impl Write, regs: &[u32]) -> io::Result<()> {
    write!(out, "cpu,number,time_ns,tsc,missed,skipped")?;
    regs.iter().try_for_each(|reg| write!(out, ",{reg:#x}"))?;
    writeln!(out)
}

/// A value that could not be read is the name of its error.
fn write_csv(out: &mut impl Write, cpu: u32, sample: &Sample) -> io::Result<()> {
    let (number, time, tsc) = (sample.number(), sample.time().as_nanos(), sample.tsc());
    let (missed, skipped) = (sample.missed(), sample.skipped());
    write!(out, "{cpu},{number},{time},{tsc},{missed},{skipped}")?;
    for result in sample.results() {
        match result {
            Ok(reading) => write!(out, ",{:#018x}", msr(reading.value))?,
            Err(error) => write!(out, ",{}", name(error))?,
        }
    }
    writeln!(out)
}

fn name(error: OpError) -> String {
    match error.errno_name() {
        Some(name) => name.into(),
        None => error.errno().to_string(),
    }
}

#[derive(Serialize)]
struct Row {
    cpu: u32,
    number: u64,
    time_ns: String,
    tsc: String,
    missed: u64,
    skipped: u64,
    values: Vec<Cell>,
}

#[derive(Serialize)]
struct Cell {
    reg: u32,
    value: Option<String>,
    errno: Option<String>,
}

/// One object on a line of its own, so that it can be read as it comes.
fn write_json(out: &mut impl Write, cpu: u32, regs: &[u32], sample: &Sample) -> io::Result<()> {
    let cell = |(&reg, result): (&u32, Result<cpupeek_client::Reading, OpError>)| Cell {
        reg,
        value: result.ok().map(|read| format!("{:#018x}", msr(read.value))),
        errno: result.err().map(name),
    };
    let row = Row {
        cpu,
        number: sample.number(),
        time_ns: sample.time().as_nanos().to_string(),
        tsc: sample.tsc().to_string(),
        missed: sample.missed(),
        skipped: sample.skipped(),
        values: regs.iter().zip(sample.results()).map(cell).collect(),
    };
    serde_json::to_writer(&mut *out, &row)?;
    writeln!(out)
}

fn age(age: Option<Duration>) -> String {
    match age.map(|age| age.as_millis()) {
        None => "-".into(),
        Some(ms) if ms < 10_000 => format!("{ms} ms"),
        Some(ms) => format!("{} s", ms / 1000),
    }
}

/// A row for each register of each CPU.
fn write_table(out: &mut impl Write, readers: &mut [Reader<'_>]) -> io::Result<()> {
    let widest = readers.iter().map(|reader| reader.slot.cpu()).max();
    let width = widest.unwrap_or(0).to_string().len().max(3);
    writeln!(
        out,
        "{:>width$}  {:10}  {:>10}  {:>8}  VALUE",
        "CPU", "MSR", "SAMPLE", "AGE"
    )?;
    for reader in readers {
        reader.slot.read(&mut reader.sample);
        let sample = &reader.sample;
        for (op, result) in reader.slot.ops().iter().zip(sample.results()) {
            let (Register::Msr(reg) | Register::Cpuid { leaf: reg, .. }) = op.register();
            let (cpu, number) = (reader.slot.cpu(), sample.number());
            let age = age(sample.age());
            write!(out, "{cpu:>width$}  {reg:#010x}  {number:>10}  {age:>8}  ")?;
            match result {
                Ok(reading) => writeln!(out, "{:#018x}", msr(reading.value))?,
                Err(error) => writeln!(out, "{error}")?,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_hold_some_looks_and_fit() {
        let ms = Duration::from_millis;
        assert_eq!(ring(ms(100), ms(1), 4, 16), 1600);
        assert_eq!(ring(ms(5000), ms(5000), 4, 1), 16);
        assert_eq!(
            ring(ms(100), Duration::from_nanos(1), 1, 1),
            MAX_RING as u32
        );
        let many = ring(ms(100), ms(1), 8192, 64);
        assert!(many >= 1);
        let size = |ring: u32, cpus: usize, regs: usize| {
            (ring as usize + 1) * cpus * (64 + 32 * regs).next_multiple_of(64)
        };
        for (cpus, regs) in [(1, 1), (64, 64), (1024, 16), (4096, 64)] {
            assert!(size(ring(ms(100), ms(1), cpus, regs), cpus, regs) < MAX_MAP);
        }
    }

    #[test]
    fn streams_are_not_late() {
        let (ms, hour) = (Duration::from_millis, Duration::from_secs(3600));
        assert_eq!(look(ms(1), true), ms(100));
        assert_eq!(look(ms(700), true), ms(700));
        assert_eq!(look(hour, true), ms(1000));
        assert_eq!(look(hour, false), hour);
        assert_eq!(last_look(hour, 2, false), 2 * hour);
        assert_eq!(last_look(hour, 2, true), 2 * hour + ms(100));
        assert_eq!(last_look(ms(1), 10, true), ms(11));
        assert!(ring(look(hour, true), hour, 4, 16) >= 16);
    }

    #[test]
    fn ages_are_short() {
        assert_eq!(age(None), "-");
        assert_eq!(age(Some(Duration::from_micros(1999))), "1 ms");
        assert_eq!(age(Some(Duration::from_secs(10))), "10 s");
    }

    #[test]
    fn titles_name_the_registers() {
        let mut out = Vec::new();
        write_titles(&mut out, &[0x10, 0xc000_0103]).expect("a Vec takes everything");
        assert_eq!(
            out,
            b"cpu,number,time_ns,tsc,missed,skipped,0x10,0xc0000103\n"
        );
    }
}
