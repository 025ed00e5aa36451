// SPDX-License-Identifier: GPL-2.0

//! The files of the named values.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::thread::sleep;
use std::time::Duration;

use cpupeek_selftests::guest;
use cpupeek_selftests::sys::Errno;

pub const SHORTEST_CACHE_MS: u64 = 100;

/// What the kernel puts into the directory of any device.
const GENERIC: &[&str] = &["dev", "power", "subsystem", "uevent"];

pub fn directory(cpu: u32) -> String {
    format!("/sys/devices/system/cpu/cpu{cpu}/cpupeek")
}

pub fn path(cpu: u32, name: &str) -> String {
    format!("{}/{name}", directory(cpu))
}

fn list(directory: &str) -> BTreeSet<String> {
    let Ok(entries) = fs::read_dir(directory) else {
        return BTreeSet::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect()
}

/// All files of a CPU.
pub fn all_names(cpu: u32) -> BTreeSet<String> {
    list(&directory(cpu))
}

/// Its values: all files but the two about the snapshot.
pub fn names(cpu: u32) -> BTreeSet<String> {
    let mut names = all_names(cpu);
    names.retain(|name| name != "age_ms" && name != "generation");
    names
}

pub fn error(error: std::io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(0))
}

/// A number as these files hold it.
#[track_caller]
pub fn parse(text: &str) -> i128 {
    let digits = text.strip_suffix('\n').expect("ends with a newline");
    let number: i128 = digits.parse().expect("is one number");
    assert_eq!(number.to_string(), digits, "in plain decimal");
    number
}

/// Reads a file that is open.
pub fn reread(file: &mut File) -> Result<i128, Errno> {
    use std::io::{Seek, SeekFrom};
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).map_err(error)?;
    file.read_to_string(&mut text).map_err(error)?;
    Ok(parse(&text))
}

/// The number in a file now.
pub fn try_number(cpu: u32, name: &str) -> Result<i128, Errno> {
    let mut file = File::open(path(cpu, name)).map_err(error)?;
    reread(&mut file)
}

#[track_caller]
pub fn number(cpu: u32, name: &str) -> i128 {
    match try_number(cpu, name) {
        Ok(number) => number,
        Err(error) => panic!("{name} of CPU {cpu}: {error:?}"),
    }
}

/// The number in a file as soon as there is one: a busy host makes reading take so long that now and
/// then nothing exact can come of it.
#[track_caller]
pub fn patient_number(cpu: u32, name: &str) -> i128 {
    loop {
        match try_number(cpu, name) {
            Err(Errno(libc::ENODATA)) => sleep(Duration::from_millis(SHORTEST_CACHE_MS)),
            Err(error) => panic!("{name} of CPU {cpu}: {error:?}"),
            Ok(number) => return number,
        }
    }
}

pub fn try_set(attribute: &str, value: &str) -> Result<(), Errno> {
    guest::write(guest::attribute_path(attribute), value)
}

#[track_caller]
pub fn set(attribute: &str, value: u64) {
    assert_eq!(
        try_set(attribute, &value.to_string()),
        Ok(()),
        "{attribute}"
    );
}

/// No CPU is given up because the host is busy.
pub fn be_patient() {
    guest::set_read_timeout_ms(30_000);
}

/// Lets every snapshot become older than it may be.
pub fn expire() {
    set("cache_ms", SHORTEST_CACHE_MS);
    sleep(Duration::from_millis(SHORTEST_CACHE_MS + 5));
}

/// A value that is read now.
pub fn try_fresh(cpu: u32, name: &str) -> Result<i128, Errno> {
    expire();
    try_number(cpu, name)
}

#[track_caller]
pub fn fresh(cpu: u32, name: &str) -> i128 {
    expire();
    number(cpu, name)
}

fn mode(path: &str) -> u32 {
    fs::metadata(path).expect("it was listed").mode() & 0o7777
}

/// Prints what there is on this machine, with modes.
pub fn print_all() {
    let mut files = BTreeSet::new();
    for cpu in guest::online() {
        for name in all_names(cpu) {
            files.insert(format!("cpu {name} {:04o}", mode(&path(cpu, &name))));
        }
    }
    let attributes = list("/sys/class/misc/cpupeek");
    for name in attributes.iter().filter(|n| !GENERIC.contains(&n.as_str())) {
        let mode = mode(&guest::attribute_path(name));
        files.insert(format!("device {name} {mode:04o}"));
    }
    for file in files {
        println!("{file}");
    }
}
