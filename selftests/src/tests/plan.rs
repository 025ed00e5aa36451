// SPDX-License-Identifier: GPL-2.0

//! Prepared plans: what is refused, and what becomes of their operations.

use super::blocked::with_blocked_cpu;
use super::read::{faulting_msr, pluggable_cpu};
use super::{tests, Env};
use crate::device::{numbered, uapi, Device, Op};
use crate::device::{BATCH, INFO, OP_SIZE, PREPARE, READ, RUN, SELF, TSC_AUX};
use crate::guest;
use crate::plan::{answers, cpupeek_prepare, cpupeek_run, request, try_prepare, Plan, RESULT_SIZE};
use crate::sampler::SAMPLER;
use crate::sys::{self, Errno, Pages};

tests! {
    "plan";
    prepare_flag_and_reserved_bits: [],
    prepare_sizes: [],
    prepare_too_many: [],
    prepare_bad_memory: [],
    run_flag_bits: [],
    run_sizes: [],
    run_number_of_results: [],
    run_tsc_without_its_flag: [],
    run_bad_memory: [],
    commands_of_the_other_descriptor: [],
    answers_again_and_again: [],
    empty_plan: [],
    refused_operations_stay_refused: [],
    refusals_are_counted_in_each_run: [],
    mapped_results: [],
    mapping_is_read_only: [],
    mapped_run_without_mapping: [],
    outlives_the_device_descriptor: [],
    closes_on_exec: [],
    cpu_that_goes_and_comes: [Hotplug],
    blocked_cpu_is_late_in_each_run: [Hold],
    two_threads_on_one_plan: [],
    keeps_its_rights_after_setuid: [],
}

fn valid() -> Vec<Op> {
    let cpus = guest::online();
    (0..40)
        .map(|i| match i % 3 {
            0 => Op::cpuid(cpus[i % cpus.len()], 0, 0),
            _ => Op::msr(cpus[i % cpus.len()], TSC_AUX),
        })
        .collect()
}

#[track_caller]
fn expect_answers(ops: &[Op], answers: &[Op]) {
    for (asked, op) in ops.iter().zip(answers) {
        op.expect_answer(asked);
        if asked.reg == TSC_AUX {
            assert_eq!(op.value() & 0xfff, asked.cpu.into(), "{op:?}");
        }
    }
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("procfs").count()
}

/// Checks that PREPARE is refused, and leaves no descriptor behind.
#[track_caller]
fn expect_refused(device: &Device, change: impl FnOnce(&mut cpupeek_prepare), error: i32) {
    let ops = valid();
    let mut request = request(&ops);
    change(&mut request);
    let before = open_descriptors();
    let result = try_prepare(device, request);
    assert_eq!(result.err(), Some(Errno(error)));
    assert_eq!(open_descriptors(), before);
}

fn prepare_flag_and_reserved_bits(_: &Env) {
    let device = Device::open();
    for bit in 0..32 {
        expect_refused(&device, |request| request.flags = 1 << bit, libc::EINVAL);
        expect_refused(&device, |request| request.reserved = 1 << bit, libc::EINVAL);
    }
}

fn prepare_sizes(_: &Env) {
    let device = Device::open();
    let size = OP_SIZE as u32;
    for op_size in [0, 1, 8, 40, size - 1, size + 1, size + 4, u32::MAX] {
        expect_refused(&device, |request| request.op_size = op_size, libc::EINVAL);
    }
    for said in 0..size_of::<cpupeek_prepare>() as u32 {
        expect_refused(&device, |request| request.size = said, libc::EINVAL);
    }
    for said in [sys::PAGE as u32 + 1, u32::MAX] {
        expect_refused(&device, |request| request.size = said, libc::E2BIG);
    }
}

fn prepare_too_many(_: &Env) {
    let device = Device::open();
    let max = device.info().max_batch_ops;
    for count in [max + 1, 1 << 31, u32::MAX] {
        expect_refused(&device, |request| request.nr_ops = count, libc::E2BIG);
    }
    let ops = vec![Op::msr(0, TSC_AUX); max as usize];
    let plan = Plan::new(&device, &ops);
    expect_answers(&ops, &plan.run(&ops));
}

fn prepare_bad_memory(_: &Env) {
    let device = Device::open();
    for address in [0, 8, 1 << 47, u64::MAX - 7, 0xffff_ffff_8100_0000] {
        expect_refused(&device, |request| request.ops = address, libc::EFAULT);
        let result = device.ioctl(PREPARE, address as usize);
        assert_eq!(result, Err(Errno(libc::EFAULT)));
    }
    // The descriptor's number cannot be told: then there is none.
    let pages = Pages::new(1, false);
    let ops = valid();
    pages.write(0, request(&ops));
    pages.protect(0, libc::PROT_READ);
    let before = open_descriptors();
    let result = device.ioctl(PREPARE, pages.address(0));
    assert_eq!(result, Err(Errno(libc::EFAULT)));
    assert_eq!(open_descriptors(), before);
    let half = Pages::new(2, false);
    half.protect(1, libc::PROT_NONE);
    let at = half.address(sys::PAGE - OP_SIZE) as u64;
    expect_refused(&device, |request| request.ops = at, libc::EFAULT);
}

fn plan_and_ops() -> (Plan, Vec<Op>) {
    let ops = valid();
    (Plan::new(&Device::open(), &ops), ops)
}

fn run_flag_bits(_: &Env) {
    let (plan, _) = plan_and_ops();
    let known = uapi::CPUPEEK_RUN_SLEEP
        | uapi::CPUPEEK_RUN_SPIN
        | uapi::CPUPEEK_RUN_TSC_PAIR
        | uapi::CPUPEEK_RUN_MAPPED;
    for flags in (0..32).map(|bit| 1 << bit).filter(|bit| bit & known == 0) {
        plan.expect_refused(|header| header.flags = flags, libc::EINVAL);
    }
    let both = uapi::CPUPEEK_RUN_SLEEP | uapi::CPUPEEK_RUN_SPIN;
    plan.expect_refused(|header| header.flags = both, libc::EINVAL);
    for flags in [uapi::CPUPEEK_RUN_SLEEP, uapi::CPUPEEK_RUN_SPIN] {
        let pages = plan.pages();
        let header = cpupeek_run {
            flags,
            ..plan.header(&pages)
        };
        assert_eq!(plan.try_run(header), Ok(()));
    }
}

fn run_sizes(_: &Env) {
    let (plan, _) = plan_and_ops();
    for said in 0..size_of::<cpupeek_run>() as u32 {
        plan.expect_refused(|header| header.size = said, libc::EINVAL);
    }
    for said in [sys::PAGE as u32 + 1, u32::MAX] {
        plan.expect_refused(|header| header.size = said, libc::E2BIG);
    }
}

fn run_number_of_results(_: &Env) {
    let (plan, ops) = plan_and_ops();
    for count in [0, 1, ops.len() as u32 - 1, ops.len() as u32 + 1, u32::MAX] {
        plan.expect_refused(|header| header.nr_results = count, libc::EINVAL);
    }
}

fn run_tsc_without_its_flag(_: &Env) {
    let (plan, _) = plan_and_ops();
    for tsc in [1, 1 << 12, 1 << 63] {
        plan.expect_refused(|header| header.tsc = tsc, libc::EINVAL);
    }
}

fn run_bad_memory(_: &Env) {
    let (plan, ops) = plan_and_ops();
    for address in [0, 8, 1 << 47, u64::MAX - 7, 0xffff_ffff_8100_0000] {
        plan.expect_refused(|header| header.results = address, libc::EFAULT);
        let result = sys::ioctl(plan.fd(), RUN, address as usize);
        assert_eq!(result, Err(Errno(libc::EFAULT)));
    }
    for prot in [libc::PROT_NONE, libc::PROT_READ] {
        let pages = Pages::new(2, false);
        pages.protect(1, prot);
        let header = cpupeek_run {
            results: pages.address(sys::PAGE - RESULT_SIZE * 3) as u64,
            ..plan.header(&pages)
        };
        assert_eq!(plan.try_run(header), Err(Errno(libc::EFAULT)));
    }
    expect_answers(&ops, &plan.run(&ops));
}

fn commands_of_the_other_descriptor(_: &Env) {
    let (plan, _) = plan_and_ops();
    let device = Device::open();
    let pages = Pages::new(1, false);
    let not_here = Err(Errno(libc::ENOTTY));
    for cmd in [INFO, READ, BATCH, PREPARE] {
        assert_eq!(sys::ioctl(plan.fd(), cmd, pages.address(0)), not_here);
    }
    let here = [RUN & 0xff, SAMPLER & 0xff];
    for nr in (0..=0xff).filter(|nr| !here.contains(nr)) {
        let result = sys::ioctl(plan.fd(), numbered(RUN, nr), pages.address(0));
        assert_eq!(result, not_here, "number {nr}");
    }
    for kind in (0..=0xff).filter(|&kind| kind != uapi::CPUPEEK_IOC_TYPE) {
        let other = RUN & !0xff00 | kind << 8;
        assert_eq!(sys::ioctl(plan.fd(), other, pages.address(0)), not_here);
    }
    assert_eq!(device.ioctl(RUN, pages.address(0)), not_here);
}

fn answers_again_and_again(_: &Env) {
    let (plan, ops) = plan_and_ops();
    let mut last = vec![0; ops.len()];
    for _ in 0..200 {
        let answers = plan.run(&ops);
        expect_answers(&ops, &answers);
        for (op, last) in answers.iter().zip(&mut last) {
            assert!(op.tsc > *last, "an answer of its own each time");
            *last = op.tsc;
        }
    }
}

fn empty_plan(_: &Env) {
    let plan = Plan::new(&Device::open(), &[]);
    assert!(plan.run(&[]).is_empty());
}

/// What is malformed, refused or not there, and the error that says so.
fn hopeless(device: &Device) -> Vec<(Op, i32)> {
    let mut reserved = Op::msr(0, TSC_AUX);
    reserved.reserved = 1;
    let absent = Op::msr(device.info().nr_cpu_ids, TSC_AUX);
    let mut hopeless = vec![
        (reserved, libc::EINVAL),
        (Op::new(0, 3, 0, 0), libc::EINVAL),
        (Op::msr(SELF, TSC_AUX), libc::EINVAL),
        (absent, libc::ENXIO),
    ];
    if let Some(reg) = faulting_msr() {
        hopeless.push((Op::msr(0, reg), libc::EIO));
    }
    hopeless
}

fn refused_operations_stay_refused(_: &Env) {
    let device = Device::open();
    for (bad, error) in hopeless(&device) {
        let good = Op::msr(0, TSC_AUX);
        let ops = [good, bad, good];
        let plan = Plan::new(&device, &ops);
        for _ in 0..3 {
            let answers = plan.run(&ops);
            answers[0].expect_answer(&good);
            answers[1].expect_error(&bad, error);
            answers[2].expect_answer(&good);
        }
    }
}

/// Whoever adds up comes to what the module has counted.
fn refusals_are_counted_in_each_run(_: &Env) {
    let child = sys::fork(|| {
        sys::set_capabilities(!(1 << sys::CAP_SYS_RAWIO));
        let secret = Op::msr(0, 0xc000_0082);
        let ops = [Op::cpuid(0, 0, 0), secret, secret];
        let plan = Plan::new(&Device::open(), &ops);
        for _ in 0..3 {
            let before = guest::attribute("refused_registers");
            plan.run(&ops)[1].expect_error(&secret, libc::EACCES);
            assert_eq!(guest::attribute("refused_registers"), before + 2);
        }
    });
    child.expect_success();
}

fn mapped() -> cpupeek_run {
    cpupeek_run {
        size: size_of::<cpupeek_run>() as u32,
        flags: uapi::CPUPEEK_RUN_MAPPED,
        ..Default::default()
    }
}

fn mapped_results(_: &Env) {
    let (plan, ops) = plan_and_ops();
    let pages = Pages::map(plan.fd(), 1, libc::PROT_READ).expect("a plan can be mapped");
    assert_eq!(pages.bytes(0, pages.len()), vec![0; pages.len()]);
    let mut last = 0;
    for _ in 0..10 {
        assert_eq!(plan.try_run(mapped()), Ok(()));
        let answers = answers(&ops, &pages);
        expect_answers(&ops, &answers);
        assert!(answers[0].tsc > last);
        last = answers[0].tsc;
    }
    let used = ops.len() * RESULT_SIZE;
    let rest = pages.bytes(used, pages.len() - used);
    assert!(rest.iter().all(|&byte| byte == 0), "nothing else is shown");
    for (nr_results, results) in [(ops.len() as u32, 0), (0, 1)] {
        let header = cpupeek_run {
            nr_results,
            results,
            ..mapped()
        };
        assert_eq!(plan.try_run(header), Err(Errno(libc::EINVAL)));
    }
    drop(plan);
    assert_eq!(
        answers(&ops, &pages)[0].tsc,
        last,
        "as long as it is mapped"
    );
}

fn mapping_is_read_only(_: &Env) {
    let (plan, _) = plan_and_ops();
    let writable = libc::PROT_READ | libc::PROT_WRITE;
    assert!(Pages::map(plan.fd(), 1, writable).is_err());
    assert!(Pages::map(plan.fd(), 1, libc::PROT_READ | libc::PROT_EXEC).is_err());
    assert!(
        Pages::map(plan.fd(), 2, libc::PROT_READ).is_err(),
        "too long"
    );
    let pages = Pages::map(plan.fd(), 1, libc::PROT_READ).expect("a plan can be mapped");
    assert!(pages.try_protect(0, writable).is_err(), "nor later");
    assert!(Pages::map(Device::open().fd(), 1, libc::PROT_READ).is_err());
}

fn mapped_run_without_mapping(_: &Env) {
    let (plan, _) = plan_and_ops();
    assert_eq!(plan.try_run(mapped()), Err(Errno(libc::EINVAL)));
}

fn outlives_the_device_descriptor(_: &Env) {
    let (plan, ops) = plan_and_ops();
    assert_eq!(guest::module_users(), 1, "the plan's own");
    let unload = sys::unload_module(guest::MODULE);
    assert_eq!(unload, Err(Errno(libc::EWOULDBLOCK)));
    expect_answers(&ops, &plan.run(&ops));
    drop(plan);
    guest::wait_until("the module is free", || guest::module_users() == 0);
}

fn closes_on_exec(_: &Env) {
    let (plan, _) = plan_and_ops();
    let info = guest::read(format!("/proc/self/fdinfo/{}", plan.fd())).unwrap();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = i32::from_str_radix(flags.expect("flags").trim(), 8).expect("octal");
    assert_ne!(flags & libc::O_CLOEXEC, 0, "{info}");
}

fn cpu_that_goes_and_comes(_: &Env) {
    let cpu = pluggable_cpu();
    let ops = [
        Op::msr(cpu, TSC_AUX),
        Op::msr(0, TSC_AUX),
        Op::cpuid(cpu, 0, 0),
    ];
    let plan = Plan::new(&Device::open(), &ops);
    for _ in 0..3 {
        expect_answers(&ops, &plan.run(&ops));
        guest::set_online(cpu, false);
        for _ in 0..2 {
            let answers = plan.run(&ops);
            answers[0].expect_error(&ops[0], libc::ENXIO);
            answers[1].expect_answer(&ops[1]);
            answers[2].expect_error(&ops[2], libc::ENXIO);
        }
        guest::set_online(cpu, true);
    }
}

fn blocked_cpu_is_late_in_each_run(_: &Env) {
    with_blocked_cpu(|blocked| {
        sys::pin(&blocked.others[..1]).unwrap();
        let own = blocked.others[0];
        let ops = [Op::msr(blocked.cpu, TSC_AUX), Op::msr(own, TSC_AUX)];
        let plan = Plan::new(&Device::open(), &ops);
        for _ in 0..5 {
            let answers = plan.run_with(&ops, 5);
            answers[0].expect_error(&ops[0], libc::ETIME);
            answers[1].expect_answer(&ops[1]);
        }
        assert!(blocked.is_held(), "nothing was proven: the CPU was let go");
        blocked.let_go();
        expect_answers(&ops, &plan.run(&ops));
    });
}

fn two_threads_on_one_plan(env: &Env) {
    let (plan, ops) = plan_and_ops();
    let start = std::time::Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while start.elapsed() < env.soak / 5 {
                    expect_answers(&ops, &plan.run(&ops));
                }
            });
        }
    });
}

fn keeps_its_rights_after_setuid(_: &Env) {
    // A kernel address, which no allowlist can hold.
    let ops = [Op::msr(0, 0xc000_0082)];
    let plan = Plan::new(&Device::open(), &ops);
    sys::become_user(1000);
    assert_eq!(Device::try_open().err(), Some(Errno(libc::EACCES)));
    plan.run(&ops)[0].expect_answer(&ops[0]);
}
