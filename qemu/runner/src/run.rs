// SPDX-License-Identifier: GPL-2.0
//! One run: everything that a guest needs, and up to three boots.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};

use crate::channel::{Channel, Source};
use crate::console::{Complaint, Patterns};
use crate::cpio::Archive;
use crate::error::{Context, Error, Result};
use crate::guest::{catch_signals, Event, Guest, Logs};
use crate::host::{Host, Kernel};
use crate::initramfs::{self, Inner};
use crate::machine::Machine;
use crate::monitor::Monitor;
use crate::options::{default_limit, Accel, Flavour, Options};
use crate::outcome::Outcome;
use crate::probe;
use crate::qemu::{self, Lane};
use crate::rundir;
use crate::slots::Slot;

/// Boots in which /init may fail to say a word before the run is given up.
const BOOTS: u32 = 3;

/// What became of a run.
pub struct Report {
    /// The result.
    pub outcome: Outcome,
    /// The kernel's complaints, whether they decided the result or not.
    pub complaints: Vec<Complaint>,
    /// How often the guest was booted.
    pub boots: u32,
    /// Where the logs are.
    pub directory: PathBuf,
}

/// Both ends of the queue of events.
pub type Events<'a> = (&'a SyncSender<Event>, &'a Receiver<Event>);

/// What a boot is made of.
pub struct Run<'a> {
    /// The command line.
    pub options: &'a Options,
    /// This host.
    pub host: &'a Host,
    /// The kernel under test.
    pub kernel: &'a Kernel,
    /// How its CPUs are made.
    pub lane: Lane,
    /// What its registers are.
    pub machine: Option<&'a Described>,
    /// Where the logs go.
    pub directory: &'a Path,
}

/// A described machine, and what makes it.
pub struct Described {
    machine: Machine,
    library: PathBuf,
}

/// Runs COMMAND in a guest.
pub fn run(options: &Options) -> Result<Report> {
    let (sender, receiver) = sync_channel(64);
    let events = (&sender, &receiver);
    catch_signals(sender.clone());
    let host = Host::new(&options.repo, options.line.clone())?;
    // Asked for early: a mistake here must not cost a boot.
    Patterns::new(&options.expected)?;
    let mut options = options.clone();
    let machine = match options.machine.clone() {
        None => None,
        Some(path) => Some(described(&host, &path, &mut options)?),
    };
    let kernel = host.kernel(options.flavour)?;
    let _slot = Slot::take(events.1)?;
    let directory = rundir::create(&host.repo)?;
    let lane = match options.accel {
        Accel::Tcg => Lane::Tcg,
        Accel::Nested => Lane::Nested,
        Accel::Auto | Accel::Kvm if probe::kvm_works(&host, &directory, events)? => Lane::Kvm,
        Accel::Auto => Lane::Tcg,
        Accel::Kvm => Lane::Nested,
    };
    Run {
        options: &options,
        host: &host,
        kernel: &kernel,
        lane,
        machine: machine.as_ref(),
        directory: &directory,
    }
    .until_it_counts(events)
}

fn described(host: &Host, path: &Path, options: &mut Options) -> Result<Described> {
    let machine = Machine::load(path)?;
    // What the command line says comes last, so that it counts.
    options.append = format!("{} {}", machine.append, options.append)
        .trim()
        .to_owned();
    match options.cpus.replace(machine.cpus) {
        Some(asked) if asked != machine.cpus => Err(Error::new(format!(
            "the machine '{}' has {} CPUs: leave --smp {asked} out",
            path.display(),
            machine.cpus
        ))),
        _ => Ok(Described {
            machine,
            library: host.machine_library()?,
        }),
    }
}

/// The environment that puts the library under QEMU.
fn preload(library: &Path, description: &str) -> [OsString; 3] {
    let mut preload = OsString::from("LD_PRELOAD=");
    preload.push(library);
    [
        "env".into(),
        preload,
        format!("CPUPEEK_MACHINE_FILE={description}").into(),
    ]
}

impl Run<'_> {
    /// Boots until /init has spoken, at most three times.
    pub fn until_it_counts(&self, events: Events<'_>) -> Result<Report> {
        let nonce = nonce()?;
        let mut large = Vec::new();
        let result = self.boots(&nonce, &mut large, events);
        // Made of what is still there.
        for file in large {
            let _ = fs::remove_file(file);
        }
        result
    }

    fn boots(&self, nonce: &str, large: &mut Vec<PathBuf>, events: Events<'_>) -> Result<Report> {
        let initramfs = self.initramfs(nonce, large)?;
        let outer = match self.lane {
            Lane::Nested => Some(self.outer(&initramfs, large)?),
            Lane::Tcg | Lane::Kvm => None,
        };
        let mut boots = 1;
        loop {
            let (outcome, complaints) = match &outer {
                None => self.boot_directly(&initramfs, nonce, events)?,
                Some(outer) => self.boot_nested(outer, nonce, events)?,
            };
            if matches!(outcome, Outcome::DiedEarly(_)) && boots < BOOTS {
                eprintln!("qemu/run: {outcome}; booting again");
                for log in ["console.log", "outer-console.log"] {
                    let kept = self.directory.join(format!("boot-{boots}-{log}"));
                    let _ = fs::rename(self.directory.join(log), kept);
                }
                boots += 1;
                continue;
            }
            return Ok(Report {
                outcome,
                complaints,
                boots,
                directory: self.directory.to_owned(),
            });
        }
    }

    fn initramfs(&self, nonce: &str, large: &mut Vec<PathBuf>) -> Result<PathBuf> {
        let mut archive = Archive::new();
        let (kernel, options, lane) = (self.kernel, self.options, self.lane);
        match &options.root {
            Some(root) => initramfs::rooted(self.host, root, options, nonce, &mut archive)?,
            None => {
                initramfs::base(self.host, &mut archive, "guest")?;
                initramfs::contents(self.host, kernel, options, lane, nonce, &mut archive)?;
            }
        }
        self.store("initramfs", archive, large)
    }

    fn store(&self, name: &str, archive: Archive, large: &mut Vec<PathBuf>) -> Result<PathBuf> {
        let path = self.directory.join(name);
        large.push(path.clone());
        fs::write(&path, archive.finish()?).context(|| format!("write '{}'", path.display()))?;
        Ok(path)
    }

    fn guest<'a>(&'a self, files: (&'a Path, &'a Path), append: &'a str) -> qemu::Guest<'a> {
        qemu::Guest {
            accel: qemu::accel(self.lane, self.options),
            cpus: self.options.cpus(),
            dies: self.machine.map_or(1, |described| described.machine.dies),
            memory: qemu::memory(self.options),
            image: files.0,
            initramfs: files.1,
            append,
            console: Source::Console,
            ports: qemu::PORTS,
        }
    }

    fn image(&self) -> &Path {
        self.options.image.as_deref().unwrap_or(&self.kernel.image)
    }

    fn boot_directly(
        &self,
        initramfs: &Path,
        nonce: &str,
        events: Events<'_>,
    ) -> Result<(Outcome, Vec<Complaint>)> {
        let append = qemu::append(self.lane, self.options);
        let guest = self.guest((self.image(), initramfs), &append);
        let (channels, arguments) = connect(&guest)?;
        let mut command = self.host.in_root();
        let registers = self.directory.join("registers.raw");
        if let Some(described) = self.machine {
            let file = self.description("machine", &registers.to_string_lossy())?;
            command.args(preload(&described.library, &file.to_string_lossy()));
        }
        command.arg("qemu-system-x86_64").args(arguments);
        let result = self.listen(command, channels, nonce, events)?;
        if let Ok(raw) = fs::read(&registers) {
            self.report(&raw)?;
            let _ = fs::remove_file(registers);
        }
        Ok(result)
    }

    /// Writes what the library is told.
    fn description(&self, name: &str, registers: &str) -> Result<PathBuf> {
        let path = self.directory.join(name);
        let lines = self.machine.map_or("", |d| &d.machine.lines);
        fs::write(&path, format!("{lines}report {registers}\n"))
            .context(|| format!("write '{}'", path.display()))?;
        Ok(path)
    }

    /// Writes the registers that the guest accessed.
    fn report(&self, raw: &[u8]) -> Result<()> {
        let Some(described) = self.machine else {
            return Ok(());
        };
        let path = self.directory.join("registers.txt");
        let text = described.machine.report(&String::from_utf8_lossy(raw));
        fs::write(&path, text).context(|| format!("write '{}'", path.display()))
    }

    /// The outer guest's kernel and initramfs.
    fn outer(&self, inner_initramfs: &Path, large: &mut Vec<PathBuf>) -> Result<Outer> {
        let kernel = self.host.kernel(Flavour::Stock)?;
        let append = qemu::append(self.lane, self.options);
        let guest = self.guest(
            (Path::new("/inner/image"), Path::new("/inner/initramfs")),
            &append,
        );
        let port = |source: Source| {
            let name = source.name();
            format!("pipe,id={name},path=/dev/virtio-ports/{name}")
        };
        let mut files = vec![
            ("/inner/image", self.image().to_owned()),
            ("/inner/initramfs", inner_initramfs.to_owned()),
        ];
        let mut command = Vec::new();
        if let Some(described) = self.machine {
            let file = self.description("machine", "/run/registers")?;
            files.push(("/inner/machine", file));
            // Wherever the repository is: the outer guest has its own /tmp and /run.
            files.push(("/inner/machine.so", described.library.clone()));
            command.extend(preload(Path::new("/inner/machine.so"), "/inner/machine"));
        }
        command.push(OsString::from("qemu-system-x86_64"));
        command.extend(
            qemu::arguments(&guest, port)
                .into_iter()
                .map(OsString::from),
        );
        let streams: Vec<_> = streams(&guest)
            .chain([Source::Registers])
            .map(Source::name)
            .collect();
        let mut archive = Archive::new();
        initramfs::base(self.host, &mut archive, "outer")?;
        initramfs::outer(
            self.host,
            &kernel,
            &Inner {
                files: &files,
                library: self.machine.map(|d| d.library.as_path()),
                streams: &streams,
                command: &command,
            },
            &mut archive,
        )?;
        Ok(Outer {
            image: kernel.image,
            initramfs: self.store("outer-initramfs", archive, large)?,
        })
    }

    fn boot_nested(
        &self,
        outer: &Outer,
        nonce: &str,
        events: Events<'_>,
    ) -> Result<(Outcome, Vec<Complaint>)> {
        let mut ports = vec![Source::OuterControl, Source::Console, Source::Registers];
        ports.extend_from_slice(qemu::PORTS);
        let guest = qemu::Guest {
            accel: qemu::OUTER_ACCEL,
            cpus: outer_cpus(self.options.cpus()),
            dies: 1,
            memory: qemu::memory(self.options) + qemu::OUTER_MEMORY,
            image: &outer.image,
            initramfs: &outer.initramfs,
            append: qemu::OUTER_APPEND,
            console: Source::OuterConsole,
            ports: &ports,
        };
        let (channels, arguments) = connect(&guest)?;
        let mut command = self.host.in_root();
        command.arg("qemu-system-x86_64").args(arguments);
        self.listen(command, channels, nonce, events)
    }

    fn listen(
        &self,
        command: Command,
        channels: Vec<Channel>,
        nonce: &str,
        events: Events<'_>,
    ) -> Result<(Outcome, Vec<Complaint>)> {
        let options = self.options;
        let nested = self.lane == Lane::Nested;
        let mut logs = Logs::new(self.directory, nested, options.console)?;
        let patterns = Patterns::new(&options.expected)?;
        let mut monitor = Monitor::new(patterns, nested, options.output_needed);
        let limit = options
            .timeout
            .unwrap_or_else(|| default_limit(options, nested));
        let guest = Guest {
            command,
            channels,
            nonce,
            limit,
        };
        let end = guest.run(&mut monitor, &mut logs, events)?;
        if !logs.registers.is_empty() {
            self.report(&logs.registers)?;
        }
        Ok(monitor.conclude(end))
    }
}

struct Outer {
    image: PathBuf,
    initramfs: PathBuf,
}

fn streams<'a>(guest: &qemu::Guest<'a>) -> impl Iterator<Item = Source> + use<'a> {
    std::iter::once(guest.console).chain(guest.ports.iter().copied())
}

/// More than this host has would only wait for each other, and one boots far more slowly than two.
fn outer_cpus(inner: u32) -> u32 {
    let here = std::thread::available_parallelism().map_or(2, |n| n.get() as u32);
    here.min(inner).max(2)
}

/// Makes the streams of a guest that runs on this host.
fn connect(guest: &qemu::Guest<'_>) -> Result<(Vec<Channel>, Vec<String>)> {
    let channels = streams(guest)
        .map(Channel::new)
        .collect::<Result<Vec<_>>>()?;
    let chardev = |source: Source| {
        channels
            .iter()
            .find(|channel| channel.source == source)
            .map(Channel::chardev)
            .unwrap_or_default()
    };
    let arguments = qemu::arguments(guest, chardev);
    Ok((channels, arguments))
}

/// Bytes that COMMAND cannot print by chance.
fn nonce() -> Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .context(|| "read /dev/urandom".to_owned())?;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("<end of output {hex}>"))
}
