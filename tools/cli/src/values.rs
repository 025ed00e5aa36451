// SPDX-License-Identifier: GPL-2.0

//! The named values, as sysfs shows them.

use crate::cpus::{CpuList, Selection};
use crate::Failure;
use cpupeek_logic::catalogue::{Entry, ENTRIES};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const CPUS: &str = "/sys/devices/system/cpu";

/// Reading it has the snapshots taken.
const REFRESH: &str = "/sys/class/misc/cpupeek/refresh";

/// Where COLUMNS does not say how wide the terminal is.
const WIDTH: usize = 80;

/// Files that are about the others.
const ABOUT: [&str; 2] = ["age_ms", "generation"];

/// More than Linux can have.
const MOST_CPUS: u32 = 1 << 20;

/// Errors of the files; std has names for few of them.
const EACCES: i32 = 13;
const EIO: i32 = 5;
const ENODEV: i32 = 19;
const ENODATA: i32 = 61;

/// Where a CPU is, as the kernel numbers that: the package, and the die and the core within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    pub package: u32,
    pub die: u32,
    pub core: u32,
}

/// The CPUs' directories.
pub struct Tree {
    root: PathBuf,
    /// Names of the values of each CPU that is online.
    names: BTreeMap<u32, Vec<String>>,
    present: Vec<u32>,
}

/// Why there is no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// There is none at the moment.
    NoData,
    /// The CPU does not have such a value.
    NotThere,
    /// The CPU is offline.
    Offline,
    /// It is for root only.
    Denied,
    /// The CPU refused the register, which it once had.
    Refused,
    /// Something else, with its number.
    Other(i32),
}

impl Missing {
    fn new(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(EACCES) => Missing::Denied,
            Some(ENODATA) => Missing::NoData,
            Some(ENODEV) => Missing::Offline,
            Some(EIO) => Missing::Refused,
            _ if error.kind() == io::ErrorKind::NotFound => Missing::NotThere,
            errno => Missing::Other(errno.unwrap_or(0)),
        }
    }

    /// In a table.
    pub fn cell(self) -> String {
        match self {
            Missing::NoData => "-".into(),
            Missing::NotThere => ".".into(),
            Missing::Offline => "offline".into(),
            Missing::Denied => "denied".into(),
            Missing::Refused => "EIO".into(),
            Missing::Other(errno) => format!("E{errno}"),
        }
    }

    /// Name of the error, what kind it is, and what it means.
    pub fn words(self) -> (String, &'static str, &'static str) {
        let (name, kind, message) = match self {
            Missing::NoData => ("ENODATA", "nodata", "there is no value at the moment"),
            Missing::NotThere => ("ENOENT", "absence", "the CPU does not have this value"),
            Missing::Offline => ("ENODEV", "absence", "the CPU is offline"),
            Missing::Denied => ("EACCES", "policy", "the value is for root only"),
            Missing::Refused => ("EIO", "hardware", "refused by the CPU"),
            Missing::Other(errno) => {
                return (
                    errno.to_string(),
                    "unknown",
                    "the kernel reports this error number",
                )
            }
        };
        (name.into(), kind, message)
    }

    /// Whether what was asked for could not be had.
    pub fn is_failure(self) -> bool {
        !matches!(self, Missing::NoData | Missing::NotThere)
    }
}

/// Has all of the snapshots taken that are old, in one call. Without the file the module is an older
/// one, or is not there, which is told of when values are read.
pub fn refresh_all() -> Result<(), Failure> {
    match fs::read(REFRESH) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Failure::System(not_refreshed(&error))),
    }
}

fn not_refreshed(error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => "run this as root",
        io::ErrorKind::OutOfMemory => "free some memory",
        _ => "try again, and see what dmesg says",
    };
    format!("cannot read {REFRESH}: {error}: {remedy}")
}

/// How wide the output may be, as COLUMNS says.
pub fn width() -> usize {
    let columns = std::env::var("COLUMNS").ok();
    let columns = columns.and_then(|columns| columns.parse().ok());
    columns.unwrap_or(WIDTH)
}

impl Tree {
    /// What there is on this machine.
    pub fn open() -> Result<Self, Failure> {
        Self::open_at(Path::new(CPUS)).map_err(Failure::System)
    }

    fn open_at(root: &Path) -> Result<Self, String> {
        let file = root.join("present");
        let present = fs::read_to_string(&file).map_err(|error| {
            format!(
                "cannot read {}: {error}: mount sysfs on /sys",
                file.display()
            )
        })?;
        let present: CpuList = present.trim_end().parse().map_err(|error| {
            let file = file.display();
            format!("{file} makes no sense ({error}): mount sysfs on /sys")
        })?;
        let present = present.expand(MOST_CPUS)?;
        let mut names = BTreeMap::new();
        for &cpu in &present {
            if let Some(found) = list(&root.join(format!("cpu{cpu}/cpupeek"))) {
                names.insert(cpu, found);
            }
        }
        if names.is_empty() {
            return Err(format!(
                "there are no named values under {}: load the module (modprobe cpupeek)",
                root.display()
            ));
        }
        Ok(Tree {
            root: root.to_owned(),
            names,
            present,
        })
    }

    /// All CPUs that have the value.
    pub fn cpus_with(&self, name: &str) -> Vec<u32> {
        let has = |names: &Vec<String>| names.iter().any(|n| n == name);
        let with = self.names.iter().filter(|(_, names)| has(names));
        with.map(|(&cpu, _)| cpu).collect()
    }

    /// Where a CPU is, as far as the kernel says.
    pub fn location(&self, cpu: u32) -> Option<Location> {
        let number = |name: &str| {
            let file = self.root.join(format!("cpu{cpu}/topology/{name}"));
            fs::read_to_string(file).ok()?.trim_end().parse().ok()
        };
        Some(Location {
            package: number("physical_package_id")?,
            // Absent where no package has several.
            die: number("die_id").unwrap_or(0),
            core: number("core_id")?,
        })
    }

    /// Every value that some CPU has, in the catalogue's order. A newer module may have some that
    /// this command does not know; they come last.
    pub fn all_names(&self) -> Vec<String> {
        let mut all: Vec<String> = self.names.values().flatten().cloned().collect();
        all.sort_by_key(|name| (place(name), name.clone()));
        all.dedup();
        all
    }

    /// The CPUs that are meant.
    pub fn cpus(&self, selection: &Selection) -> Result<Vec<u32>, Failure> {
        let wanted = match selection {
            Selection::All => return Ok(self.present.clone()),
            Selection::List(list) => {
                let beyond = self.present.last().map_or(0, |last| last + 1);
                list.expand(beyond).map_err(Failure::Usage)?
            }
        };
        match wanted.iter().find(|cpu| !self.present.contains(cpu)) {
            Some(cpu) => Err(Failure::Usage(format!(
                "there is no CPU {cpu} here: {CPUS}/present has the list"
            ))),
            None => Ok(wanted),
        }
    }

    /// A value, as the kernel prints it.
    pub fn read(&self, cpu: u32, name: &str) -> Result<String, Missing> {
        let directory = self.root.join(format!("cpu{cpu}/cpupeek"));
        match fs::read_to_string(directory.join(name)) {
            Ok(text) => Ok(text.trim_end().to_owned()),
            Err(error) => match Missing::new(&error) {
                Missing::NotThere if !directory.exists() => Err(Missing::Offline),
                missing => Err(missing),
            },
        }
    }
}

/// Names of the values in a CPU's directory, if it is there.
fn list(directory: &Path) -> Option<Vec<String>> {
    let entries = fs::read_dir(directory).ok()?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Some(
        names
            .filter(|name| !ABOUT.contains(&name.as_str()))
            .collect(),
    )
}

fn place(name: &str) -> usize {
    let found = ENTRIES.iter().position(|entry| text(entry) == name);
    found.unwrap_or(ENTRIES.len())
}

/// An entry's name.
pub fn text(entry: &Entry) -> &'static str {
    // The catalogue's names are ASCII; its own tests see to that.
    entry.name.to_str().unwrap_or_default()
}

/// The entry of a value, if this command knows it.
pub fn entry(name: &str) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| text(entry) == name)
}

/// CPU numbers as the kernel writes them: 0-3,7.
pub fn ranges(cpus: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for &cpu in cpus {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => parts.push((cpu, cpu)),
        }
    }
    let part = |&(first, last): &(u32, u32)| {
        if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        }
    };
    parts.iter().map(part).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A directory that goes when it is dropped.
    pub struct Fake(PathBuf);

    impl Fake {
        pub fn new(test: &str, present: &str) -> Self {
            let name = format!("cpupeek-{test}-{}", std::process::id());
            let root = std::env::temp_dir().join(name);
            fs::create_dir_all(&root).expect("a directory");
            fs::write(root.join("present"), present).expect("a file");
            Fake(root)
        }

        pub fn cpu(self, cpu: u32, values: &[(&str, &str)]) -> Self {
            let directory = self.0.join(format!("cpu{cpu}/cpupeek"));
            fs::create_dir_all(&directory).expect("a directory");
            for (name, value) in values.iter().chain(&[("age_ms", "1"), ("generation", "1")]) {
                fs::write(directory.join(name), format!("{value}\n")).expect("a file");
            }
            self
        }

        pub fn topology(self, cpu: u32, package: u32, core: u32) -> Self {
            let directory = self.0.join(format!("cpu{cpu}/topology"));
            fs::create_dir_all(&directory).expect("a directory");
            for (name, id) in [("physical_package_id", package), ("core_id", core)] {
                fs::write(directory.join(name), format!("{id}\n")).expect("a file");
            }
            self
        }

        pub fn open(&self) -> Result<Tree, String> {
            Tree::open_at(&self.0)
        }
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_is_there() {
        let fake = Fake::new("there", "0-2,5\n")
            .cpu(0, &[("zz_new", "1"), ("smi", "7"), ("tsc", "123")])
            .cpu(2, &[("tsc", "124")]);
        let tree = fake.open().expect("values");
        assert_eq!(tree.all_names(), ["tsc", "smi", "zz_new"]);
        assert_eq!(tree.cpus_with("tsc"), [0, 2]);
        assert_eq!(tree.cpus_with("smi"), [0]);
        assert_eq!(tree.read(0, "smi"), Ok("7".into()));
        assert_eq!(tree.read(2, "smi"), Err(Missing::NotThere));
        assert_eq!(tree.read(1, "smi"), Err(Missing::Offline));
        let cpus = |text: &str| tree.cpus(&text.parse().expect("a list"));
        assert_eq!(cpus("all").ok(), Some(vec![0, 1, 2, 5]));
        assert_eq!(cpus("0,5").ok(), Some(vec![0, 5]));
        for absent in ["3", "6", "0-5"] {
            assert_eq!(cpus(absent).expect_err(absent).status(), 2);
        }
    }

    #[test]
    fn nothing_is_there() {
        let error = Fake::new("nothing", "0\n").open().err();
        assert!(error.expect("no module").contains("modprobe cpupeek"));
        let error = Tree::open_at(Path::new("/nonexistent")).err();
        assert!(error.expect("no sysfs").contains("mount sysfs"));
        let error = Fake::new("nonsense", "none\n").open().err();
        let error = error.expect("nonsense");
        assert!(error.contains("makes no sense") && error.ends_with(": mount sysfs on /sys"));
    }

    #[test]
    fn lists_of_cpus() {
        assert_eq!(ranges(&[]), "");
        assert_eq!(ranges(&[3]), "3");
        assert_eq!(ranges(&[0, 1, 2, 3, 7, 9, 10]), "0-3,7,9-10");
    }

    #[test]
    fn errors() {
        let missing = |errno| Missing::new(&io::Error::from_raw_os_error(errno));
        assert_eq!(missing(61), Missing::NoData);
        assert_eq!(missing(13), Missing::Denied);
        assert_eq!(missing(19), Missing::Offline);
        assert_eq!(missing(5), Missing::Refused);
        assert_eq!(missing(2), Missing::NotThere);
        assert_eq!(missing(12).cell(), "E12");
        assert_eq!(missing(12).words().0, "12");
        assert!(!missing(61).is_failure() && missing(13).is_failure());
        let error = not_refreshed(&io::Error::from_raw_os_error(13));
        assert!(error.ends_with(": run this as root"), "{error}");
    }
}
