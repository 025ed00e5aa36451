// SPDX-License-Identifier: GPL-2.0
//! One run: everything that a guest needs, and up to three boots.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};

use crate::channel::{Channel, Source};
use crate::console::{Complaint, Patterns};
use crate::cpio::Archive;
use crate::error::{Context, Result};
use crate::guest::{catch_signals, Event, Guest, Logs};
use crate::host::{Host, Kernel};
use crate::initramfs;
use crate::monitor::Monitor;
use crate::options::{default_limit, Options};
use crate::outcome::Outcome;
use crate::qemu::{self, Lane};
use crate::rundir;

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

/// Runs COMMAND in a guest.
pub fn run(options: &Options) -> Result<Report> {
    let (sender, receiver) = sync_channel(64);
    catch_signals(sender.clone());
    let host = Host::new(&options.repo, options.line.clone())?;
    // Asked for early: a mistake here must not cost a boot.
    Patterns::new(&options.expected)?;
    let kernel = host.kernel(options.flavour)?;
    let lane = Lane::Tcg;
    let directory = rundir::create(&host.repo)?;
    let result = boot_until_it_counts(
        &Run {
            options,
            host: &host,
            kernel: &kernel,
            lane,
            directory: &directory,
        },
        (&sender, &receiver),
    );
    // Large, and made of what is still there.
    let _ = fs::remove_file(directory.join("initramfs"));
    result
}

struct Run<'a> {
    options: &'a Options,
    host: &'a Host,
    kernel: &'a Kernel,
    lane: Lane,
    directory: &'a Path,
}

fn boot_until_it_counts(
    run: &Run<'_>,
    events: (&SyncSender<Event>, &Receiver<Event>),
) -> Result<Report> {
    let nonce = nonce()?;
    let initramfs = initramfs(run, &nonce)?;
    let mut boots = 1;
    loop {
        let (outcome, complaints) = boot(run, &initramfs, &nonce, events)?;
        if matches!(outcome, Outcome::DiedEarly(_)) && boots < BOOTS {
            eprintln!("qemu/run: {outcome}; booting again");
            let kept = run.directory.join(format!("console-boot-{boots}.log"));
            let _ = fs::rename(run.directory.join("console.log"), kept);
            boots += 1;
            continue;
        }
        return Ok(Report {
            outcome,
            complaints,
            boots,
            directory: run.directory.to_owned(),
        });
    }
}

fn initramfs(run: &Run<'_>, nonce: &str) -> Result<PathBuf> {
    let mut archive = Archive::new();
    initramfs::base(run.host, &mut archive, "guest")?;
    initramfs::contents(run.host, run.kernel, run.options, nonce, &mut archive)?;
    let path = run.directory.join("initramfs");
    fs::write(&path, archive.finish()?).context(|| format!("write '{}'", path.display()))?;
    Ok(path)
}

fn boot(
    run: &Run<'_>,
    initramfs: &Path,
    nonce: &str,
    events: (&SyncSender<Event>, &Receiver<Event>),
) -> Result<(Outcome, Vec<Complaint>)> {
    let options = run.options;
    let nested = run.lane == Lane::Nested;
    let mut channels = vec![Channel::new(Source::Console)?];
    for source in qemu::PORTS {
        channels.push(Channel::new(*source)?);
    }
    let chardev = |source: Source| {
        channels
            .iter()
            .find(|channel| channel.source == source)
            .map(Channel::chardev)
            .unwrap_or_default()
    };
    let arguments = qemu::arguments(
        &qemu::Guest {
            accel: &qemu::accel(run.lane, options),
            cpus: options.cpus,
            memory: qemu::memory(options),
            image: options.image.as_deref().unwrap_or(&run.kernel.image),
            initramfs,
            append: &qemu::append(options),
            console: Source::Console,
            ports: qemu::PORTS,
        },
        chardev,
    );
    let mut command = run.host.in_root();
    command.arg("qemu-system-x86_64").args(arguments);
    let mut logs = Logs::new(run.directory, nested, options.console)?;
    let mut monitor = Monitor::new(
        Patterns::new(&options.expected)?,
        nested,
        options.output_needed,
    );
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
    Ok(monitor.conclude(end))
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
