// SPDX-License-Identifier: GPL-2.0

//! What of the module's state can be seen, to compare it before and after a command that failed.

use std::fs;

use cpupeek_selftests::device::{uapi, Device};
use cpupeek_selftests::guest;

/// Attributes of the device that only tell.
pub fn counters() -> Vec<String> {
    let mut names = Vec::new();
    let settings = guest::settings();
    for entry in fs::read_dir(guest::attribute_path("")).expect("the module is loaded") {
        let entry = entry.expect("a directory can be read");
        let name = entry.file_name().to_string_lossy().into_owned();
        let other = ["dev", "uevent"].contains(&name.as_str()) || settings.contains(&name);
        if entry.metadata().is_ok_and(|file| file.is_file()) && !other {
            names.push(name);
        }
    }
    names.sort();
    names
}

/// Everything that a command which fails must leave as it was.
#[derive(Debug, PartialEq, Eq)]
pub struct State {
    settings: Vec<(String, u64)>,
    generation: u64,
    ranges: Vec<(u32, u32, u32)>,
    descriptors: usize,
    module_users: u32,
}

impl State {
    pub fn now() -> Self {
        let descriptors = fs::read_dir("/proc/self/fd").expect("procfs").count();
        let module_users = guest::module_users();
        let (ranges, generation) = list(&Device::open());
        let value = |name: String| {
            let value = guest::attribute(&name);
            (name, value)
        };
        Self {
            settings: guest::settings().into_iter().map(value).collect(),
            generation,
            ranges,
            descriptors,
            module_users,
        }
    }
}

/// The allowlist, and its number.
fn list(device: &Device) -> (Vec<(u32, u32, u32)>, u64) {
    let mut ranges = vec![uapi::cpupeek_range::default(); 1000];
    let mut header = uapi::cpupeek_allow {
        size: size_of::<uapi::cpupeek_allow>() as u32,
        nr_ranges: ranges.len() as u32,
        ranges: ranges.as_mut_ptr().expose_provenance() as u64,
        ..Default::default()
    };
    let result = device.ioctl(
        uapi::CPUPEEK_CONST_IOC_GET_ALLOW,
        (&raw mut header).expose_provenance(),
    );
    assert_eq!(result, Ok(()), "GET_ALLOW");
    ranges.truncate(header.nr_ranges as usize);
    let ranges = ranges.iter().map(|r| (r.lo, r.hi, r.flags)).collect();
    (ranges, header.generation)
}
