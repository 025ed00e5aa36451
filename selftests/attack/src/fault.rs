// SPDX-License-Identifier: GPL-2.0

//! Everything that can fail in the module, made to fail in turn: each allocation and each copy from or
//! to a user, in each command, attribute, and change to the machine. What fails says so with the right
//! error and leaves everything as it was.
//!
//! Not covered this way: what other tasks do for a command (the workqueue that frees abandoned groups,
//! which allocates nothing, and the timer of values that are counted along), and what is copied by
//! unsafe_get_user() and unsafe_put_user(), for which see `boundary`.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::thread::sleep;
use std::time::Duration;

use cpupeek_selftests::device::{header, Device, Op, PATH, TSC_AUX};
use cpupeek_selftests::guest;
use cpupeek_selftests::plan::Plan;
use cpupeek_selftests::sys::{self, Errno, Pages, Result};
use cpupeek_selftests::tests::alloc::expect_balance;
use cpupeek_selftests::tests::Env;
use cpupeek_selftests::util::Random;

use crate::calls::{self, Call, Scene, World};
use crate::image::Image;
use crate::inject::{self, Nth};
use crate::state::{self, State};
use crate::tests;

tests! {
    "fault";
    in_commands: [Trace],
    in_open_and_mmap: [Trace],
    in_samplers: [],
    in_commands_of_users: [],
    in_attributes: [],
    in_named_values: [Cpus],
    in_cpus_that_come_online: [Hotplug],
    in_loading: [Module],
}

/// No call has more; one that does not come to an end is a mistake.
const MOST: u32 = 3000;

/// Whether this kernel can do it at all; stock ones cannot.
fn can_inject() -> bool {
    let there = inject::is_there();
    if !there {
        println!("this kernel has no fault injection");
        assert_ne!(
            std::env::var("CPUPEEK_FLAVOUR").as_deref(),
            Ok("debug"),
            "the debug kernel must have it"
        );
    }
    there
}

thread_local! {
    static POINTS: Cell<u32> = const { Cell::new(0) };
}

/// Runs `attempt` with the first, second, ... thing in it failing until nothing is left that could.
/// `attempt` is given what to arm, and returns the outcome and whether something has failed.
fn each(name: &str, errors: &[i32], mut attempt: impl FnMut(u32) -> (Result<()>, bool)) {
    let (mut failed, mut coped) = (0, 0);
    for n in 1..MOST {
        let (result, injected) = attempt(n);
        if !injected {
            assert_eq!(result, Ok(()), "{name}: nothing was made to fail");
            if n > 1 {
                println!("{name}: {} points, of which it copes with {coped}", n - 1);
            }
            POINTS.with(|points| points.set(points.get() + n - 1));
            return;
        }
        match result {
            Ok(()) => coped += 1,
            Err(Errno(error)) => {
                assert!(errors.contains(&error), "{name}, {n}: {:?}", Errno(error));
                failed += 1;
            }
        }
    }
    panic!("{name}: {failed} failures, and no end");
}

/// Shows the sum, for the script that adds up.
fn total() {
    POINTS.with(|points| println!("failure points: {}", points.get()));
}

/// ENFILE is what the kernel makes of memory that is missing for a file.
const USUAL: [i32; 3] = [libc::ENOMEM, libc::EFAULT, libc::ENFILE];

fn command(call: &Call, n: u32, nth: &Nth) -> (Result<()>, bool) {
    let cpus = calls::cpus();
    let world = World::new(&cpus);
    let mut scene = Scene {
        cpus: &cpus,
        random: Random::new(7),
        strict: true,
    };
    let mut image = Image::new(None);
    (call.fill)(&mut image, &mut scene);
    image.seal();
    let before = State::now();
    nth.arm(n);
    let result = world.run(call, &image);
    let injected = nth.disarm();
    match result {
        Ok(()) => (call.check)(&image, &world, &scene),
        Err(_) => {
            assert_eq!(State::now(), before, "{}, {n}", call.name);
            world.expect_intact();
            // It works as if nothing had happened.
            assert_eq!(world.run(call, &image), Ok(()), "{} again", call.name);
            (call.check)(&image, &world, &scene);
        }
    }
    (result, injected)
}

fn in_commands(_: &Env) {
    if !can_inject() {
        return;
    }
    calls::stay_away();
    inject::only_in(inject::module_range());
    let nth = Nth::of_this_thread();
    // The module's list of samplers keeps the memory that it has grown to.
    drop(World::new(&calls::cpus()));
    expect_balance(|| {
        for call in calls::all() {
            // A new list has no refusals.
            calls::have_a_refusal();
            each(call.name, &USUAL, |n| command(call, n, &nth));
        }
        1
    });
    println!("{} commands", calls::count());
    total();
}

fn in_open_and_mmap(_: &Env) {
    if !can_inject() {
        return;
    }
    inject::only_in(inject::module_range());
    let nth = Nth::of_this_thread();
    expect_balance(|| {
        each("open", &[libc::ENOMEM], |n| {
            let before = State::now();
            nth.arm(n);
            let opened = Device::try_open();
            let injected = nth.disarm();
            let result = opened.as_ref().map(|_| ()).map_err(|&error| error);
            drop(opened);
            assert_eq!(State::now(), before);
            (result, injected)
        });
        each("mmap", &[libc::ENOMEM, libc::EAGAIN], |n| {
            let device = Device::open();
            let ops = calls::plan_ops(&calls::cpus());
            let plan = Plan::new(&device, &ops);
            nth.arm(n);
            let mapped = Pages::map(plan.fd(), 1, libc::PROT_READ);
            let injected = nth.disarm();
            let again = Pages::map(plan.fd(), 1, libc::PROT_READ).map(|_| ());
            assert_eq!(again, Ok(()), "the plan can still be mapped");
            plan.run(&ops);
            (mapped.map(|_| ()), injected)
        });
        1
    });
    total();
}

fn in_samplers(_: &Env) {
    if !can_inject() {
        return;
    }
    inject::only_in(inject::module_range());
    let nth = Nth::of_this_thread();
    // The module's list of samplers keeps the memory that it has grown to.
    drop(World::new(&calls::cpus()));
    expect_balance(|| {
        let world = World::new(&calls::cpus());
        each("mmap of a sampler", &[libc::ENOMEM, libc::EAGAIN], |n| {
            nth.arm(n);
            let mapped = Pages::map(world.sampler.fd(), 1, libc::PROT_READ);
            let injected = nth.disarm();
            (mapped.map(|_| ()), injected)
        });
        let mut told = 0;
        each("read of a sampler", &[libc::EFAULT], |n| {
            assert_eq!(world.sampler.poll(30_000), libc::POLLIN);
            nth.arm(n);
            let result = world.sampler.read(8);
            let injected = nth.disarm();
            if result.is_err() {
                let again = world.sampler.read(8).expect("it is told the next time");
                assert!(again.0 == 8 && again.1 > 0, "{again:?}");
            }
            told += 1;
            (result.map(|_| ()), injected)
        });
        assert!(told > 1, "copying the number can fail");
        1
    });
    total();
}

/// Commands of somebody without CAP_SYS_RAWIO, who has an account, and whose plans are checked anew
/// when the list has changed.
fn in_commands_of_users(_: &Env) {
    if !can_inject() {
        return;
    }
    inject::only_in(inject::module_range());
    let cpus = calls::cpus();
    let root = Device::open();
    let child = sys::fork(|| {
        let asked = plan_of_user(&cpus);
        sys::set_capabilities(!(1 << sys::CAP_SYS_RAWIO));
        let nth = Nth::of_this_thread();
        each("open by a user", &[libc::ENOMEM], |n| {
            nth.arm(n);
            let opened = Device::try_open();
            let injected = nth.disarm();
            (opened.map(|_| ()), injected)
        });
        each("BATCH by a user", &USUAL, |n| {
            let device = Device::open();
            let mut ops = asked.clone();
            nth.arm(n);
            let result = device.try_batch(header(0), &mut ops);
            let injected = nth.disarm();
            if result.is_ok() {
                for (asked, answer) in asked.iter().zip(&ops) {
                    calls::check_answer(asked, answer, false);
                }
            }
            (result, injected)
        });
        each("RUN with another list", &USUAL, |n| {
            let device = Device::open();
            let plan = Plan::new(&device, &asked);
            let pages = plan.pages();
            // A shorter list: what the plan was prepared with is checked again, and something fails.
            shorten(&root, n % 2 == 0);
            nth.arm(n);
            let result = plan.try_run(plan.header(&pages));
            let injected = nth.disarm();
            shorten(&root, false);
            (result, injected)
        });
        total();
    });
    child.expect_success();
}

fn plan_of_user(cpus: &[u32]) -> Vec<Op> {
    let mut ops = calls::plan_ops(cpus);
    ops.push(Op::msr(cpus[0], 0x10));
    ops
}

/// Sets a list with the TSC on it, or without, on a descriptor of root's.
fn shorten(root: &Device, without: bool) {
    use cpupeek_selftests::device::uapi;
    let range = |reg| uapi::cpupeek_range {
        lo: reg,
        hi: reg,
        flags: uapi::CPUPEEK_RANGE_UNSAFE,
        ..Default::default()
    };
    let ranges = [range(0xe7), range(0x10)];
    let mut header = uapi::cpupeek_allow {
        size: size_of::<uapi::cpupeek_allow>() as u32,
        nr_ranges: if without { 1 } else { 2 },
        ranges: ranges.as_ptr().expose_provenance() as u64,
        ..Default::default()
    };
    let result = root.ioctl(
        uapi::CPUPEEK_CONST_IOC_SET_ALLOW,
        (&raw mut header).expose_provenance(),
    );
    assert_eq!(result, Ok(()), "SET_ALLOW");
}

/// Reads a file that is open already.
fn read(file: &mut File) -> Result<String> {
    let mut buffer = [0; 64];
    match file.read(&mut buffer) {
        Ok(count) => Ok(String::from_utf8_lossy(&buffer[..count]).into_owned()),
        Err(error) => Err(Errno(error.raw_os_error().unwrap_or(0))),
    }
}

fn in_attributes(_: &Env) {
    if !can_inject() {
        return;
    }
    inject::only_in(inject::module_range());
    let nth = Nth::of_this_thread();
    let names = [guest::settings(), state::counters()].concat();
    for name in &names {
        each(&format!("show {name}"), &USUAL, |n| {
            let mut file = File::open(guest::attribute_path(name)).expect("is there");
            nth.arm(n);
            let text = read(&mut file);
            let injected = nth.disarm();
            if let Ok(text) = &text {
                assert!(text.trim_end().parse::<u64>().is_ok(), "{name}: {text:?}");
            }
            (text.map(|_| ()), injected)
        });
    }
    for name in &guest::settings() {
        each(&format!("store {name}"), &USUAL, |n| {
            let before = State::now();
            let value = guest::attribute(name);
            let options = File::options()
                .write(true)
                .open(guest::attribute_path(name));
            let mut file = options.expect("root may write it");
            nth.arm(n);
            let written = file.write(value.to_string().as_bytes());
            let injected = nth.disarm();
            drop(file);
            assert_eq!(State::now(), before, "{name}");
            let errno = |error: std::io::Error| Errno(error.raw_os_error().unwrap_or(0));
            (written.map(|_| ()).map_err(errno), injected)
        });
    }
    println!("{} attributes", names.len());
    total();
}

fn in_named_values(_: &Env) {
    if !can_inject() {
        return;
    }
    inject::only_in(inject::module_range());
    let nth = Nth::of_this_thread();
    assert_eq!(
        guest::write(guest::attribute_path("cache_ms"), "100"),
        Ok(())
    );
    let cpu = calls::cpus().pop().expect("a CPU");
    let directory = format!("/sys/devices/system/cpu/cpu{cpu}/cpupeek");
    let mut names: Vec<_> = fs::read_dir(&directory)
        .expect("the CPU has a directory")
        .map(|entry| entry.expect("can be read").path())
        .collect();
    names.sort();
    // Values that come to nothing in this machine say so; a failure must not look like that.
    let nothing = |error: &Errno| error.0 == libc::ENODATA;
    for path in &names {
        each(&format!("show {}", path.display()), &USUAL, |n| {
            let mut file = File::open(path).expect("is there");
            // Old enough to be taken anew.
            sleep(Duration::from_millis(110));
            nth.arm(n);
            let text = read(&mut file);
            let injected = nth.disarm();
            let result = match text {
                Err(error) if nothing(&error) => Ok(()),
                other => other.map(|_| ()),
            };
            (result, injected)
        });
    }
    assert_eq!(
        guest::write(guest::attribute_path("cache_ms"), "1000"),
        Ok(())
    );
    println!("{} values", names.len());
    total();
}

/// The callbacks of a CPU that comes online run in a task of that CPU.
fn in_cpus_that_come_online(_: &Env) {
    if !can_inject() {
        return;
    }
    inject::only_in(inject::module_range());
    let cpu = guest::online()
        .into_iter()
        .rfind(|&cpu| guest::can_go_offline(cpu))
        .expect("one can");
    let nth = Nth::of_task(&format!("cpuhp/{cpu}"));
    let directory = format!("/sys/devices/system/cpu/cpu{cpu}/cpupeek");
    let exists = || std::path::Path::new(&directory).exists();
    each("CPU online", &[libc::ENOMEM], |n| {
        if guest::online().contains(&cpu) {
            guest::set_online(cpu, false);
        }
        assert!(!exists());
        nth.arm(n);
        let result = guest::try_set_online(cpu, true);
        let injected = nth.disarm();
        assert_eq!(exists(), result.is_ok(), "its files");
        let asked = Op::msr(cpu, TSC_AUX);
        let answer = Device::open().read(asked);
        if result.is_ok() {
            calls::check_answer(&asked, &answer, true);
        } else {
            let online = guest::online().contains(&cpu);
            assert!(!online, "it came online all the same");
            answer.expect_error(&asked, libc::ENXIO);
        }
        (result, injected)
    });
    total();
}

fn in_loading(env: &Env) {
    if !can_inject() {
        return;
    }
    inject::only_in(inject::initcall_range());
    let nth = Nth::of_this_thread();
    let unload = || {
        guest::wait_until("the module is gone", || {
            sys::unload_module(guest::MODULE).is_ok()
        });
    };
    unload();
    // Whoever could open anything of a module that then fails to load would close what is not there.
    let opener = sys::fork(|| {
        sys::die_with_parent();
        let paths = [PATH, "/dev/cpupeek-cpu/0/msr", "/dev/cpupeek-cpu/1/cpuid"];
        loop {
            for path in paths {
                if let Ok(file) = std::fs::File::open(path) {
                    sleep(Duration::from_millis(20));
                    drop(file);
                }
                sleep(Duration::from_millis(1));
            }
        }
    });
    let gone = || {
        assert!(!guest::module_is_loaded("cpupeek"));
        assert_eq!(Device::try_open().err(), Some(Errno(libc::ENOENT)));
        for cpu in guest::online() {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpupeek");
            assert!(!std::path::Path::new(&path).exists(), "{path}");
        }
    };
    each("loading", &[libc::ENOMEM], |n| {
        nth.arm(n);
        let result = sys::load_module(&env.module, "cpu_word=1");
        let injected = nth.disarm();
        match result {
            Ok(()) => {
                let cpu = guest::online()[0];
                assert_eq!(Device::open().msr(cpu, TSC_AUX) & 0xfff, cpu.into());
                if injected {
                    unload();
                }
            }
            Err(_) => gone(),
        }
        (result, injected)
    });
    opener.kill(libc::SIGKILL);
    opener.wait();
    total();
}
