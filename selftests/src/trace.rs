// SPDX-License-Identifier: GPL-2.0

//! What the kernel's tracepoints saw, in a trace instance of our own.

use std::fs;
use std::path::Path;

use crate::guest::{read, write};
use crate::sys::Errno;

pub const TRACING: &str = "/sys/kernel/tracing";
const INSTANCE: &str = "/sys/kernel/tracing/instances/cpupeek-selftests";

/// Removes the instance if it is there.
pub fn remove() -> Result<(), Errno> {
    if !Path::new(INSTANCE).exists() {
        return Ok(());
    }
    fs::remove_dir(INSTANCE).map_err(|error| Errno(error.raw_os_error().unwrap_or(0)))
}

/// One line of a trace.
#[derive(Debug)]
pub struct Event {
    pub cpu: u32,
    /// The CPU's time stamp counter.
    pub tsc: u64,
    pub name: String,
    /// `key=value` words, as they are.
    text: String,
}

impl Event {
    /// The value of a field.
    pub fn field(&self, key: &str) -> Option<&str> {
        self.text.split_whitespace().find_map(|word| {
            let (name, value) = word.split_once('=')?;
            (name == key).then_some(value)
        })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Of a line such as `  selftests-123   [002] d.h.1  5678901234: kfree: call_site=... ptr=...`.
    fn parse(line: &str) -> Option<Self> {
        let (_, rest) = line.split_once(" [")?;
        let (cpu, rest) = rest.split_once(']')?;
        let (before, rest) = rest.split_once(": ")?;
        let (name, text) = rest.split_once(':')?;
        Some(Self {
            cpu: cpu.parse().ok()?,
            tsc: before.split_whitespace().last()?.parse().ok()?,
            name: name.to_owned(),
            text: text.to_owned(),
        })
    }
}

/// Tracing that is under way.
pub struct Trace;

impl Trace {
    /// Starts tracing events such as `kmem/kfree`, each with a filter or none.
    #[track_caller]
    pub fn start(events: &[(&str, &str)]) -> Self {
        remove().expect("the instance of the test before is gone");
        fs::create_dir(INSTANCE).expect("tracefs is mounted");
        let set = |file: &str, text: &str| {
            assert_eq!(
                write(format!("{INSTANCE}/{file}"), text),
                Ok(()),
                "{file} {text}"
            );
        };
        set("trace_clock", "x86-tsc");
        for (event, filter) in events {
            if !filter.is_empty() {
                set(&format!("events/{event}/filter"), filter);
            }
            set(&format!("events/{event}/enable"), "1");
        }
        Self
    }

    /// Stops, and returns what was seen. A full buffer would be a lie.
    #[track_caller]
    pub fn stop(self) -> Vec<Event> {
        assert_eq!(write(format!("{INSTANCE}/tracing_on"), "0"), Ok(()));
        for cpu in crate::guest::online() {
            let stats = read(format!("{INSTANCE}/per_cpu/cpu{cpu}/stats")).unwrap();
            for line in stats.lines() {
                let lost = line.starts_with("overrun:") || line.starts_with("dropped events:");
                assert!(
                    !lost || line.ends_with(": 0"),
                    "the trace is not complete: {line}"
                );
            }
        }
        let text = read(format!("{INSTANCE}/trace")).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines
            .map(|line| Event::parse(line).unwrap_or_else(|| panic!("not understood: {line}")))
            .collect()
    }
}
