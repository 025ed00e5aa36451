// SPDX-License-Identifier: GPL-2.0

//! The machine that the tests run on: its CPUs, its counters, and how to put it back in order.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::hold;
use crate::sys::{self, Errno};
use crate::trace;

pub const MODULE: &std::ffi::CStr = c"cpupeek";
const ATTRIBUTES: &str = "/sys/class/misc/cpupeek";
pub const CGROUP: &str = "/sys/fs/cgroup/cpupeek-selftests";
pub const READ_TIMEOUT_MS: u64 = 1000;

pub fn read(path: impl AsRef<Path>) -> Result<String, String> {
    let path = path.as_ref();
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Writes to a file of the kernel's, and returns what it says to that.
pub fn write(path: impl AsRef<Path>, text: &str) -> Result<(), Errno> {
    fs::write(path, text).map_err(|error| Errno(error.raw_os_error().unwrap_or(0)))
}

/// What the kernel has logged so far.
pub fn kernel_log() -> String {
    const ALL: libc::c_int = 3;
    let mut text = vec![0u8; 1 << 20];
    // SAFETY: There is room for that many bytes.
    let size = unsafe { libc::klogctl(ALL, text.as_mut_ptr().cast(), text.len() as libc::c_int) };
    text.truncate(usize::try_from(size).expect("root may read the log"));
    String::from_utf8_lossy(&text).into_owned()
}

/// The numbers of a list such as "0,2-3".
pub fn parse_list(list: &str) -> Vec<u32> {
    let mut cpus = Vec::new();
    for part in list.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse::<u32>().expect("the kernel prints numbers");
        cpus.extend(number(first)..=number(last));
    }
    cpus
}

fn cpu_list(name: &str) -> Vec<u32> {
    let path = format!("/sys/devices/system/cpu/{name}");
    parse_list(&read(path).expect("sysfs is mounted"))
}

pub fn online() -> Vec<u32> {
    cpu_list("online")
}

pub fn possible() -> Vec<u32> {
    cpu_list("possible")
}

/// CPUs that are there, and offline.
pub fn offline() -> Vec<u32> {
    let online = online();
    let mut present = cpu_list("present");
    present.retain(|cpu| !online.contains(cpu));
    present
}

/// Takes a CPU offline or online.
pub fn try_set_online(cpu: u32, online: bool) -> Result<(), Errno> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
    write(path, if online { "1" } else { "0" })
}

#[track_caller]
pub fn set_online(cpu: u32, online: bool) {
    assert_eq!(try_set_online(cpu, online), Ok(()), "CPU {cpu}");
}

/// Whether a CPU can be taken offline at all.
pub fn can_go_offline(cpu: u32) -> bool {
    Path::new(&format!("/sys/devices/system/cpu/cpu{cpu}/online")).exists()
}

pub fn attribute_path(name: &str) -> String {
    format!("{ATTRIBUTES}/{name}")
}

/// One of the module's numbers in sysfs.
#[track_caller]
pub fn attribute(name: &str) -> u64 {
    let text = read(attribute_path(name)).unwrap();
    let number = text.strip_suffix('\n').expect("ends with a newline");
    number.parse().expect("is a decimal number")
}

#[track_caller]
pub fn set_read_timeout_ms(ms: u64) {
    let path = attribute_path("read_timeout_ms");
    assert_eq!(write(path, &ms.to_string()), Ok(()));
}

/// For each CPU how many function-call interrupts it has had, and how many of any kind that one
/// CPU sends to another.
pub fn call_interrupts() -> Vec<(u32, u64)> {
    let text = read("/proc/interrupts").unwrap();
    let mut lines = text.lines();
    let heads = lines.next().unwrap_or_default().split_whitespace();
    let cpus: Vec<u32> = heads.map(|head| head[3..].parse().expect("CPUn")).collect();
    let row = lines
        .find_map(|line| line.trim_start().strip_prefix("CAL:"))
        .expect("/proc/interrupts has a CAL row");
    let counts = row.split_whitespace().map_while(|word| word.parse().ok());
    cpus.into_iter().zip(counts).collect()
}

pub fn module_is_loaded(name: &str) -> bool {
    read("/proc/modules")
        .unwrap()
        .lines()
        .any(|line| line.split(' ').next() == Some(name))
}

/// How many hold the module: descriptors and the like.
pub fn module_users() -> u32 {
    let text = read("/sys/module/cpupeek/refcnt").unwrap();
    text.trim().parse().expect("a number")
}

/// Waits until `condition` holds. It is a mistake if that does not happen in a long time.
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "not in 30 s: {what}"
        );
        sleep(Duration::from_millis(1));
    }
}

/// Attributes of the device that can be set.
pub fn settings() -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(attribute_path("")).expect("the module is loaded") {
        let entry = entry.expect("a directory can be read");
        let writable = entry
            .metadata()
            .is_ok_and(|file| file.is_file() && !file.permissions().readonly());
        let name = entry.file_name().to_string_lossy().into_owned();
        if writable && name != "uevent" {
            names.push(name);
        }
    }
    names.sort();
    assert!(!names.is_empty());
    names
}

/// What the guest was like before the first test.
pub struct Baseline {
    online: Vec<u32>,
    settings: Vec<(String, String)>,
    pub module: PathBuf,
}

impl Baseline {
    pub fn new(module: PathBuf) -> Self {
        let value = |name: String| match name.as_str() {
            // Emulated CPUs of a busy host are slow.
            "read_timeout_ms" => (name, READ_TIMEOUT_MS.to_string()),
            _ => {
                let value = attribute(&name).to_string();
                (name, value)
            }
        };
        Self {
            online: online(),
            settings: settings().into_iter().map(value).collect(),
            module,
        }
    }

    /// Puts the guest back in order after a test, however that has ended. Returns what could not
    /// be put right.
    pub fn restore(&self) -> Vec<String> {
        let mut trouble = Vec::new();
        let mut note = |what: &str, result: Result<(), Errno>| {
            if let Err(error) = result {
                trouble.push(format!("{what} failed: {error:?}"));
            }
        };
        if hold::is_loaded() {
            note("letting CPUs go", hold::try_stop());
        }
        note("removing the trace instance", trace::remove());
        if Path::new(CGROUP).exists() {
            let _ = write(format!("{CGROUP}/cgroup.freeze"), "0");
            let _ = write(format!("{CGROUP}/cgroup.kill"), "1");
            let removed = (0..1000).any(|_| {
                sleep(Duration::from_millis(1));
                fs::remove_dir(CGROUP).is_ok()
            });
            note(
                "removing the cgroup",
                if removed {
                    Ok(())
                } else {
                    Err(Errno(libc::EBUSY))
                },
            );
        }
        let online = online();
        for &cpu in self.online.iter().filter(|cpu| !online.contains(cpu)) {
            note("bringing a CPU online", try_set_online(cpu, true));
        }
        for &cpu in online.iter().filter(|cpu| !self.online.contains(cpu)) {
            note("taking a CPU offline", try_set_online(cpu, false));
        }
        if !module_is_loaded("cpupeek") {
            note("loading the module", sys::load_module(&self.module, ""));
        }
        note(
            "the device's mode",
            sys::try_set_mode(crate::device::PATH, 0o600),
        );
        // A test that fails does not come to put back what it has set.
        for (name, value) in &self.settings {
            note(name, write(attribute_path(name), value));
        }
        trouble
    }
}
