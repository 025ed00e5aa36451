// SPDX-License-Identifier: GPL-2.0

//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use crate::tests::{Need, Test};

pub const HELP: &str = "\
[OPTION]...

Tests the cpupeek module of this machine, as root, in KTAP. Not for a machine that somebody needs:
CPUs go offline, their interrupts are held off, and the module is unloaded again and again.

  --list             print the names of the tests, and do nothing
  --filter SUBSTR    only tests whose name contains SUBSTR; may be repeated
  --group NAME       only tests of this group (what is before the dot); may be repeated
  --soak SECONDS     how long tests that repeat something go on (default: $SOAK, else 5)
  --limit SECONDS    how long a test may take besides that (default: 120)
  --seed N           what random choices begin with (default: the time)
  --provides LIST    what this machine provides, separated by commas, or 'all': a test that is
                     skipped because such a thing is missing has failed
                     (cpus, hotplug, hold, module, msr, fault, counter, trace, freezer,
                     spare, steal, overcommitted; the last is believed and not looked for)
  --module FILE      the module (default: /lib/cpupeek.ko)
  --hold FILE        the module that holds interrupts off (default: /root/cpupeek_hold.ko)
  --help             this text

Exit status: 0 all passed or were skipped, 1 a test has failed, 2 nothing could be tested.
";

pub enum Command {
    Help,
    Run(Options),
}

pub struct Options {
    pub list: bool,
    filters: Vec<String>,
    groups: Vec<String>,
    pub soak: Duration,
    pub limit: Duration,
    pub seed: u64,
    pub provides: Vec<Need>,
    pub module: PathBuf,
    pub hold: PathBuf,
}

impl Options {
    pub fn selects(&self, test: &Test) -> bool {
        let name = test.name();
        (self.filters.is_empty() || self.filters.iter().any(|part| name.contains(part.as_str())))
            && (self.groups.is_empty() || self.groups.iter().any(|group| group == test.group))
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds @ 1..=86400) => Ok(Duration::from_secs(seconds)),
        _ => Err(format!(
            "'{text}' is no number of seconds between 1 and 86400"
        )),
    }
}

fn provided(list: &str) -> Result<Vec<Need>, String> {
    if list == "all" {
        return Ok(Need::ALL.to_vec());
    }
    list.split(',')
        .filter(|name| !name.is_empty())
        .map(|name| {
            let found = Need::ALL.iter().find(|need| need.name() == name);
            found.copied().ok_or_else(|| {
                format!("--provides {name}: there is no such thing (--help has the list)")
            })
        })
        .collect()
}

pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Command, String> {
    let mut options = Options {
        list: false,
        filters: Vec::new(),
        groups: Vec::new(),
        soak: Duration::from_secs(5),
        // Emulated guests on a busy host are slow.
        limit: Duration::from_secs(120),
        seed: std::time::UNIX_EPOCH
            .elapsed()
            .map_or(0, |now| now.as_nanos() as u64),
        provides: Vec::new(),
        module: "/lib/cpupeek.ko".into(),
        hold: "/root/cpupeek_hold.ko".into(),
    };
    if let Ok(soak) = std::env::var("SOAK") {
        options.soak = seconds(&soak).map_err(|error| format!("$SOAK: {error}"))?;
    }
    while let Some(argument) = arguments.next() {
        let mut value = || {
            let value = arguments.next();
            value.ok_or_else(|| format!("{argument} wants a value (--help says which)"))
        };
        match argument.as_str() {
            "--help" => return Ok(Command::Help),
            "--list" => options.list = true,
            "--filter" => options.filters.push(value()?),
            "--group" => options.groups.push(value()?),
            "--soak" => options.soak = seconds(&value()?)?,
            "--limit" => options.limit = seconds(&value()?)?,
            "--seed" => {
                let text = value()?;
                options.seed = text
                    .parse()
                    .map_err(|_| format!("--seed {text}: that is no number"))?;
            }
            "--provides" => options.provides = provided(&value()?)?,
            "--module" => options.module = value()?.into(),
            "--hold" => options.hold = value()?.into(),
            _ => return Err(format!("'{argument}' is no option (--help shows them)")),
        }
    }
    Ok(Command::Run(options))
}
