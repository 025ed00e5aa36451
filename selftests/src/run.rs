// SPDX-License-Identifier: GPL-2.0

//! Runs tests: each in a process of its own, with a time limit, and the guest put back in order
//! after it. One that hangs or crashes is one `not ok`, and the next one begins as it should.

use std::fs::File;
use std::io::{Read, Write};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::cli::Options;
use crate::guest::{self, Baseline};
use crate::hold;
use crate::kcov;
use crate::sys::{self, Child, Errno, Exit};
use crate::tests::{Env, Need, Test};

/// How often a test is run if it fails after a CPU was let go too early: that is what becomes of it
/// on a host that is too busy to run the guest, and says nothing of the module.
const ATTEMPTS: u32 = 3;

/// Runs `tests`. Returns whether none has failed, or why there was nothing to test.
pub fn run(tests: &[&Test], options: &Options) -> Result<bool, String> {
    if sys::geteuid() != 0 {
        return Err("only root may take CPUs offline and unload modules: run it as root".into());
    }
    if !guest::module_is_loaded("cpupeek") {
        sys::load_module(&options.module, "").map_err(|error| {
            format!(
                "the module is not loaded, and {} does not load ({error:?}): give --module FILE",
                options.module.display()
            )
        })?;
    }
    let mut load_hold = !hold::is_loaded() && options.hold.exists();
    if load_hold {
        match sys::load_module(&options.hold, "") {
            Ok(()) => {}
            // It cannot measure time here: what wants it is skipped, or fails if it was promised.
            Err(Errno(libc::ENODEV)) => load_hold = false,
            Err(error) => {
                return Err(format!(
                    "{} does not load: {error:?}",
                    options.hold.display()
                ));
            }
        }
    }
    sys::adopt_orphans();

    let baseline = Baseline::new(options.module.clone());
    let env = Env {
        module: options.module.clone(),
        soak: options.soak,
        seed: options.seed,
    };
    println!("KTAP version 1\n1..{}", tests.len());
    println!("# seed {}, soaks of {:?}", env.seed, env.soak);
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (number, test) in (1..).zip(tests) {
        let start = Instant::now();
        let result = run_one(test, &env, &baseline, options);
        if start.elapsed() >= Duration::from_secs(1) {
            println!("# took {} ms", start.elapsed().as_millis());
        }
        let verdict = match &result {
            Verdict::Passed => {
                passed += 1;
                format!("ok {number} {}", test.name())
            }
            Verdict::Failed(why) => {
                failed += 1;
                println!("# {why}");
                format!("not ok {number} {}", test.name())
            }
            Verdict::Skipped(why) => {
                skipped += 1;
                format!("ok {number} {} # SKIP {why}", test.name())
            }
        };
        println!("{verdict}");
        // A guest that dies in the next test must not take this line with it.
        let _ = std::io::stdout().flush();
    }
    if load_hold {
        if let Err(error) = sys::unload_module(hold::MODULE) {
            println!("# cpupeek_hold does not unload: {error:?}");
        }
    }
    for line in kcov::collect().lines() {
        println!("# {line}");
    }
    println!("# {passed} passed, {failed} failed, {skipped} skipped");
    Ok(failed == 0)
}

enum Verdict {
    Passed,
    Failed(String),
    Skipped(String),
}

fn run_one(test: &Test, env: &Env, baseline: &Baseline, options: &Options) -> Verdict {
    for need in test.needs {
        // What only the host can know is as it says.
        let told = *need == Need::Overcommitted && options.provides.contains(need);
        if let Some(why) = need.missing(env).filter(|_| !told) {
            return if options.provides.contains(need) {
                Verdict::Failed(format!("should not be missing here: {why}"))
            } else {
                Verdict::Skipped(why)
            };
        }
    }

    for _ in 1..ATTEMPTS {
        let expired = hold::expired();
        let verdict = attempt(test, env, baseline, options);
        if !matches!(verdict, Verdict::Failed(_)) || hold::expired() == expired {
            return verdict;
        }
        println!("# a CPU was let go before the test was through with it; again");
    }
    attempt(test, env, baseline, options)
}

fn attempt(test: &Test, env: &Env, baseline: &Baseline, options: &Options) -> Verdict {
    let (output, input) = sys::pipe();
    let child = sys::fork(|| {
        sys::lead_group();
        sys::die_with_parent();
        sys::dup_to(&input, 1);
        sys::dup_to(&input, 2);
        std::panic::set_hook(Box::new(|panic| {
            eprintln!("{panic}");
            sys::exit(1);
        }));
        if !test.needs.contains(&Need::Hold) {
            sys::pin(&guest::online()).expect("CPUs that are online");
        }
        (test.run)(env);
    });
    drop(input);

    let limit = options.limit + 3 * options.soak;
    let exit = watch(child, output, limit);
    let mut trouble = Vec::new();
    match exit {
        Some(Exit::Code(0)) => {}
        Some(Exit::Code(code)) => trouble.push(format!("failed with status {code}")),
        Some(other) => trouble.push(format!("died: {other:?}")),
        None => trouble.push(format!("not through in {limit:?}")),
    }
    trouble.extend(baseline.restore());
    // After that, nothing keeps them from dying.
    if !reap_all(child) {
        trouble.push("a process that was killed does not die".into());
    }
    if trouble.is_empty() {
        Verdict::Passed
    } else {
        Verdict::Failed(trouble.join("; "))
    }
}

/// Shows what the test prints until it ends, which it does within `limit` or is killed.
fn watch(child: Child, mut output: File, limit: Duration) -> Option<Exit> {
    let start = Instant::now();
    let mut lines = Lines::default();
    let mut exit = None;
    while exit.is_none() && start.elapsed() < limit {
        lines.show_some(&mut output, 50);
        exit = child.try_wait();
    }
    sys::kill_group(child.0);
    while lines.show_some(&mut output, 0) {}
    lines.end();
    exit
}

/// Waits for everything that a test has left behind. Returns whether all of it has died.
fn reap_all(child: Child) -> bool {
    for _ in 0..5000 {
        sys::kill_group(child.0);
        match sys::reap_any() {
            None => return true,
            Some(Ok(_)) => {}
            Some(Err(())) => sleep(Duration::from_millis(1)),
        }
    }
    false
}

/// A test's output as diagnostic lines.
#[derive(Default)]
struct Lines(Vec<u8>);

impl Lines {
    /// Shows whole lines that come within `ms`. Returns whether there was anything.
    fn show_some(&mut self, output: &mut File, ms: i32) -> bool {
        let mut buffer = [0; 4096];
        if !sys::readable(output, ms) {
            return false;
        }
        let Ok(count @ 1..) = output.read(&mut buffer) else {
            if ms > 0 {
                // The output is closed, and the process not gone yet.
                sleep(Duration::from_millis(1));
            }
            return false;
        };
        self.0.extend_from_slice(&buffer[..count]);
        while let Some(end) = self.0.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.0.drain(..=end).collect();
            println!("# {}", String::from_utf8_lossy(&line[..end]));
        }
        true
    }

    fn end(self) {
        if !self.0.is_empty() {
            println!("# {}", String::from_utf8_lossy(&self.0));
        }
    }
}
