// SPDX-License-Identifier: GPL-2.0

//! What `cpupeek doctor` finds out.

use cpupeek_client::{allowed_cpus, WidenedAffinity};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// The device's file.
pub struct Node {
    pub mode: u32,
    pub owner: String,
    pub group: String,
    uid: u32,
    gid: u32,
}

pub struct Facts {
    pub loaded: bool,
    pub generation: Option<String>,
    pub node: Option<Node>,
    pub user: String,
    uid: u32,
    groups: Vec<u32>,
    pub rawio: bool,
    pub nice: bool,
    overrides_modes: bool,
    pub initial_namespace: bool,
    pub confidential: bool,
    pub cpu: u32,
    pub present: Vec<u32>,
    pub online: Vec<u32>,
    pub isolated: Vec<u32>,
    pub affinity: Vec<u32>,
    pub cpuset: Vec<u32>,
}

const CAP_DAC_OVERRIDE: u32 = 1;
const CAP_SYS_RAWIO: u32 = 17;
const CAP_SYS_NICE: u32 = 23;

fn read(path: impl AsRef<Path>) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The numbers of a list such as `0,2-3`; nothing if it is none.
fn numbers(list: &str) -> Vec<u32> {
    let mut all = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse(), last.trim().parse::<u32>()) {
            all.extend(first..=last.min(1 << 16));
        }
    }
    all
}

/// Numbers in ascending order as such a list.
pub fn join(numbers: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for &number in numbers {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => parts.push((number, number)),
        }
    }
    let part = |&(first, last): &(u32, u32)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    };
    match parts.is_empty() {
        true => "none".into(),
        false => parts.iter().map(part).collect::<Vec<_>>().join(","),
    }
}

/// The name that a file such as /etc/passwd has for a number.
fn name(file: &str, id: u32) -> String {
    let text = fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let known = text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(id)).then(|| name.to_owned())
    });
    known.unwrap_or_else(|| id.to_string())
}

/// A field of /proc/self/status.
fn status(text: &str, field: &str) -> String {
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_default().trim().to_owned()
}

impl Facts {
    pub fn gather(device: &Path, cpu: Option<u32>) -> Self {
        let own = read("/proc/self/status").unwrap_or_default();
        let ids = |field: &str| -> Vec<u32> {
            let words = status(&own, field);
            words
                .split_whitespace()
                .filter_map(|id| id.parse().ok())
                .collect()
        };
        // Real, effective, saved, and that of the file system.
        let uid = ids("Uid").get(1).copied().unwrap_or(u32::MAX);
        let mut groups = ids("Groups");
        groups.extend(ids("Gid").get(1));
        let capabilities = u64::from_str_radix(&status(&own, "CapEff"), 16).unwrap_or(0);
        let has = |capability: u32| capabilities >> capability & 1 != 0;

        let affinity = allowed_cpus().unwrap_or_default();
        // The one way to learn what the cpuset allows that works everywhere.
        let widened = WidenedAffinity::new().and_then(|_widened| allowed_cpus());
        let cpus = |name: &str| {
            let path = format!("/sys/devices/system/cpu/{name}");
            numbers(&read(path).unwrap_or_default())
        };
        let mut isolated = cpus("isolated");
        isolated.extend(cpus("nohz_full"));
        isolated.extend(numbers(
            &read("/sys/fs/cgroup/cpuset.cpus.isolated").unwrap_or_default(),
        ));
        Facts {
            loaded: Path::new("/sys/module/cpupeek").exists(),
            generation: read("/sys/class/misc/cpupeek/allow_generation"),
            node: fs::metadata(device).ok().map(|meta| Node {
                mode: meta.permissions().mode() & 0o7777,
                owner: name("/etc/passwd", meta.uid()),
                group: name("/etc/group", meta.gid()),
                uid: meta.uid(),
                gid: meta.gid(),
            }),
            user: name("/etc/passwd", uid),
            uid,
            groups,
            rawio: has(CAP_SYS_RAWIO),
            nice: has(CAP_SYS_NICE),
            overrides_modes: has(CAP_DAC_OVERRIDE),
            initial_namespace: read("/proc/self/uid_map")
                .is_none_or(|map| map.split_whitespace().eq(["0", "0", "4294967295"])),
            confidential: read("/sys/kernel/security/lockdown")
                .is_some_and(|state| state.contains("[confidentiality]")),
            cpu: cpu.unwrap_or_else(|| current_cpu(&affinity)),
            present: cpus("present"),
            online: cpus("online"),
            isolated,
            cpuset: widened.unwrap_or_else(|_| affinity.clone()),
            affinity,
        }
    }

    /// CAP_SYS_RAWIO as it counts.
    pub fn has_rawio(&self) -> bool {
        self.rawio && self.initial_namespace
    }

    /// Whether the modes let the caller open the device.
    pub fn may_open(&self, node: &Node) -> bool {
        let class = if self.uid == node.uid {
            node.mode >> 6
        } else if self.groups.contains(&node.gid) {
            node.mode >> 3
        } else {
            node.mode
        };
        class & 0o4 != 0 || (self.overrides_modes && self.initial_namespace)
    }
}

/// The CPU that this runs on, or one that it may run on.
fn current_cpu(affinity: &[u32]) -> u32 {
    let stat = read("/proc/self/stat").unwrap_or_default();
    // The 39th field; the second one, in parentheses, may have spaces in it.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let field = fields.split_whitespace().nth(36);
    field
        .and_then(|field| field.parse().ok())
        .or(affinity.first().copied())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_go_both_ways() {
        for list in ["0", "0-3", "0,2-3,7", "5-6,9"] {
            assert_eq!(join(&numbers(list)), list);
        }
        assert_eq!(join(&[]), "none");
        assert!(numbers("").is_empty());
        assert!(numbers("(null)").is_empty());
    }

    #[test]
    fn facts_of_this_machine() {
        let facts = Facts::gather(Path::new("/dev/null"), None);
        assert!(!facts.online.is_empty() && !facts.affinity.is_empty());
        assert!(facts.affinity.contains(&facts.cpu), "CPU {}", facts.cpu);
        let node = facts.node.as_ref().expect("there is a /dev/null");
        assert!(facts.may_open(node));
    }

    #[test]
    fn modes_decide() {
        let mut facts = Facts::gather(Path::new("/dev/null"), Some(0));
        (facts.uid, facts.groups, facts.overrides_modes) = (1000, vec![5], false);
        let open = |mode, uid, gid| {
            facts.may_open(&Node {
                mode,
                owner: String::new(),
                group: String::new(),
                uid,
                gid,
            })
        };
        assert!(!open(0o600, 0, 0));
        assert!(!open(0o660, 0, 4));
        assert!(open(0o660, 0, 5));
        assert!(open(0o600, 1000, 0));
        assert!(open(0o666, 0, 0));
    }
}
