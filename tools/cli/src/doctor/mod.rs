// SPDX-License-Identifier: GPL-2.0

//! `cpupeek doctor`: why the current user can or cannot read a register of a
//! CPU, and what would change it.

mod facts;

use crate::args::parse_number;
use crate::cpus::number;
use crate::{Failure, Outcome};
use clap::Args;
use cpupeek_client::{Cpu, Device, Op, OpError};
use cpupeek_logic::policy::registers::{class_of, Class};
use facts::{join, Facts};
use std::io::Write;
use std::path::Path;

const EXIT_STATUS: &str = "\
Exit status:
  0  you can read it
  1  you cannot; the output says why, and what would change it
  2  the command line is wrong";

#[derive(Args, Debug)]
#[command(after_help = EXIT_STATUS)]
pub struct DoctorArgs {
    /// Register, such as 0x19c
    #[arg(value_name = "REG", value_parser = parse_number)]
    pub reg: Option<u32>,

    /// CPU [default: the one that this runs on]
    #[arg(long, value_name = "N", value_parser = number)]
    pub cpu: Option<u32>,
}

/// What is said of one thing, and what would change it.
struct Finding {
    topic: &'static str,
    text: String,
    remedy: Option<String>,
}

impl Finding {
    fn fine(topic: &'static str, text: impl Into<String>) -> Self {
        Finding {
            topic,
            text: text.into(),
            remedy: None,
        }
    }

    fn bad(topic: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Finding {
            topic,
            text: text.into(),
            remedy: Some(remedy.into()),
        }
    }
}

pub fn run(out: &mut impl Write, path: &Path, args: &DoctorArgs) -> Result<Outcome, Failure> {
    let facts = Facts::gather(path, args.cpu);
    let device = Device::open_path(path);
    let mut findings = vec![module(&facts), node(&facts, path)];
    findings.push(caller(&facts));
    let mut about = Vec::new();
    if let Some(reg) = args.reg {
        about.push(register(reg, &facts, device.as_ref().ok()));
    }
    about.push(cpu(&facts));
    let (well, verdict) = match &device {
        Err(error) => {
            let text = "you cannot open the device";
            (false, Finding::bad("result", text, error.to_string()))
        }
        Ok(device) => attempt(device, args.reg, &facts, &about),
    };
    findings.append(&mut about);
    findings.push(verdict);

    for finding in &findings {
        writeln!(out, "{:<9} {}", finding.topic, finding.text)?;
    }
    // What is in the way of others is of no interest to who can read it.
    if !well {
        writeln!(out)?;
        for remedy in findings
            .iter()
            .filter_map(|finding| finding.remedy.as_ref())
        {
            writeln!(out, "* {remedy}")?;
        }
    }
    out.flush()?;
    Ok(if well {
        Outcome::AllRead
    } else {
        Outcome::SomeFailed
    })
}

fn module(facts: &Facts) -> Finding {
    match (facts.loaded, &facts.generation) {
        // What to do then is what opening the device says.
        (false, _) => Finding::fine("module", "is not loaded"),
        (true, Some(number)) => {
            Finding::fine("module", format!("is loaded, allowlist number {number}"))
        }
        (true, None) => Finding::fine("module", "is loaded"),
    }
}

fn node(facts: &Facts, path: &Path) -> Finding {
    let Some(node) = &facts.node else {
        return Finding::fine("device", format!("{}: there is none", path.display()));
    };
    let text = format!(
        "{} is of user {} and group {}, mode {:04o}",
        path.display(),
        node.owner,
        node.group,
        node.mode
    );
    if facts.may_open(node) {
        return Finding::fine("device", text);
    }
    Finding::bad(
        "device",
        text + ": you may not open it",
        if node.mode & 0o060 == 0 {
            "have the administrator install udev/60-cpupeek.rules, and make you a member of the group cpupeek".into()
        } else {
            format!(
                "have the administrator make you a member of the group {}",
                node.group
            )
        },
    )
}

fn caller(facts: &Facts) -> Finding {
    let mut text = format!("user {}", facts.user);
    let has = |name: &str, it: bool| {
        if it {
            name.to_owned()
        } else {
            format!("no {name}")
        }
    };
    text += &format!(
        ", {}, {}",
        has("CAP_SYS_RAWIO", facts.rawio),
        has("CAP_SYS_NICE", facts.nice)
    );
    if !facts.initial_namespace {
        text += ", in a user namespace, whose capabilities do not count";
    }
    if facts.confidential {
        text += "; the kernel is locked down for confidentiality";
    }
    Finding::fine("you", text)
}

fn register(reg: u32, facts: &Facts, device: Option<&Device>) -> Finding {
    let (class, rule) = class_of(reg);
    let why = match rule {
        Some(rule) => format!("{} [{}]", rule.reason, rule.source),
        None => "nobody has said that it is harmless".into(),
    };
    let listed = device.and_then(|device| device.allowed().ok()).map(|list| {
        let mut ranges = list.ranges.iter();
        ranges.any(|range| (range.lo..=range.hi).contains(&reg))
    });
    let on_list = match listed {
        Some(true) => "; it is on the list",
        Some(false) => "; it is not on the list",
        None => "",
    };
    let all = facts.has_rawio() && !(facts.confidential && class == Class::Never);
    match class {
        Class::Never if !all => Finding::bad(
            "register",
            format!("{reg:#x} can never be listed: {why}"),
            if facts.has_rawio() {
                format!("{reg:#x} is refused to everybody under lockdown=confidentiality: start the kernel without it")
            } else {
                format!("{reg:#x} needs CAP_SYS_RAWIO in the initial user namespace, whatever the allowlist says")
            },
        ),
        _ if all || listed == Some(true) => Finding::fine("register", format!("{reg:#x} {why}{on_list}")),
        Class::Free => Finding::bad(
            "register",
            format!("{reg:#x} may be listed: {why}{on_list}"),
            format!("have the administrator add {reg:#x} to the list: cpupeek allow load FILE"),
        ),
        _ => Finding::bad(
            "register",
            format!("{reg:#x} may be listed with a mark: {why}{on_list}"),
            format!("have the administrator add '{reg:#x} unsafe' to the list, if that is acceptable: cpupeek allow load FILE"),
        ),
    }
}

fn cpu(facts: &Facts) -> Finding {
    let cpu = facts.cpu;
    let mut text = format!("{cpu}");
    if !facts.online.contains(&cpu) {
        return if facts.present.contains(&cpu) {
            Finding::bad(
                "CPU",
                text + " is offline",
                format!("bring it online as root: echo 1 >/sys/devices/system/cpu/cpu{cpu}/online"),
            )
        } else {
            let present = join(&facts.present);
            Finding::bad(
                "CPU",
                text + " is not there",
                format!("name one of the CPUs {present}"),
            )
        };
    }
    text += &format!(
        " is online; you may run on {}, and your cpuset has {}",
        join(&facts.affinity),
        join(&facts.cpuset)
    );
    if facts.isolated.contains(&cpu) {
        if facts.affinity == [cpu] {
            return Finding::fine("CPU", text + "; it is isolated, and this runs on it");
        }
        return Finding::bad(
            "CPU",
            format!("{text}; it is isolated"),
            format!("read it from a thread on it: taskset --cpu-list {cpu} cpupeek ...; or disturb it with --disturb, which needs CAP_SYS_NICE"),
        );
    }
    if facts.has_rawio() || facts.affinity.contains(&cpu) {
        return Finding::fine("CPU", text);
    }
    let remedy = if facts.cpuset.contains(&cpu) {
        format!(
            "run where you may use it: taskset --cpu-list {} ...",
            join(&facts.cpuset)
        )
    } else {
        format!("have the administrator add CPU {cpu} to your cpuset")
    };
    Finding::bad("CPU", text, remedy)
}

/// What can be said without trying, where that could do harm. `about` is what is known of the register and
/// the CPU.
fn untried(reg: u32, facts: &Facts, about: &[Finding]) -> Option<(bool, Finding)> {
    if class_of(reg).0 != Class::Never || !facts.has_rawio() {
        return None;
    }
    let well = about.iter().all(|finding| finding.remedy.is_none());
    let may = if well { "may" } else { "cannot" };
    let text = format!("you {may} read it; this does not try, since reading it may have effects");
    Some((well, Finding::fine("result", text)))
}

/// Tries it, unless that could do harm. Whether it can be read, and what there is to say.
fn attempt(device: &Device, reg: Option<u32>, facts: &Facts, about: &[Finding]) -> (bool, Finding) {
    if let Some(verdict) = reg.and_then(|reg| untried(reg, facts, about)) {
        return verdict;
    }
    let (op, what) = match reg {
        Some(reg) => (Op::msr(Cpu::Number(facts.cpu), reg), "it"),
        None => (Op::cpuid(Cpu::Number(facts.cpu), 0, 0), "CPUID"),
    };
    let error = match device.read(&op) {
        Ok(_) => {
            return (
                true,
                Finding::fine("result", format!("you can read {what}")),
            )
        }
        Err(cpupeek_client::Error::Op(error)) => error,
        Err(error) => {
            let verdict = Finding::bad("result", "you cannot read it", error.to_string());
            return (false, verdict);
        }
    };
    let remedy = match error {
        OpError::RegisterRefused => {
            "a register that was listed later counts for descriptors that are opened later"
        }
        OpError::CpuRefused => "only the CPU is refused, not the register",
        OpError::Hardware => "no right would change that: this CPU does not have the register",
        OpError::Absent => "only a CPU that is there and online can be read",
        OpError::Timeout => "the CPU keeps its interrupts off for long: try again",
        _ => "see dmesg",
    };
    let text = format!("you cannot read {what}: {error}");
    (false, Finding::bad("result", text, remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The local APIC's number, one of a range where reading some has effects.
    const NEVER: u32 = 0x802;

    /// Root, on a machine with CPUs 0 to 3.
    fn root() -> Facts {
        let mut facts = Facts::gather(Path::new("/dev/null"), Some(3));
        (facts.rawio, facts.nice, facts.initial_namespace) = (true, true, true);
        facts.confidential = false;
        facts.present = vec![0, 1, 2, 3];
        facts.online = facts.present.clone();
        facts.affinity = facts.present.clone();
        facts.cpuset = facts.present.clone();
        facts.isolated = vec![];
        facts
    }

    /// Whether it is said to be readable, without trying, and the remedies.
    fn verdict(facts: &Facts) -> (bool, String) {
        let about = [register(NEVER, facts, None), cpu(facts)];
        let (well, result) = untried(NEVER, facts, &about).expect("it is not tried");
        assert_eq!(result.text.contains("you may read it"), well);
        let remedies = about.into_iter().filter_map(|finding| finding.remedy);
        (well, remedies.collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn what_is_not_tried_is_not_promised_either() {
        assert_eq!(class_of(NEVER).0, Class::Never);
        assert_eq!(verdict(&root()), (true, String::new()));

        let mut facts = root();
        facts.confidential = true;
        let (well, remedies) = verdict(&facts);
        assert!(
            !well && remedies.contains("refused to everybody"),
            "{remedies}"
        );
        assert!(!remedies.contains("CAP_SYS_RAWIO"), "{remedies}");

        facts = root();
        facts.online = vec![0, 1, 2];
        let (well, remedies) = verdict(&facts);
        assert!(!well && remedies.contains("bring it online"), "{remedies}");
        facts.present = vec![0, 1, 2];
        let (well, remedies) = verdict(&facts);
        assert!(
            !well && remedies.contains("name one of the CPUs 0-2"),
            "{remedies}"
        );

        facts = root();
        facts.isolated = vec![3];
        let (well, remedies) = verdict(&facts);
        assert!(!well && remedies.contains("--disturb"), "{remedies}");
        facts.affinity = vec![3];
        assert_eq!(verdict(&facts), (true, String::new()));
    }

    #[test]
    fn what_the_caller_may_not_do_is_tried() {
        let mut facts = root();
        facts.rawio = false;
        assert!(untried(NEVER, &facts, &[]).is_none());
        let remedy = register(NEVER, &facts, None).remedy;
        assert!(remedy.is_some_and(|remedy| remedy.contains("needs CAP_SYS_RAWIO")));
        facts.rawio = true;
        assert!(untried(0x19c, &facts, &[]).is_none());
    }
}
