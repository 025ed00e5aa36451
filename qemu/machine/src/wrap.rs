// SPDX-License-Identifier: GPL-2.0
//! The two functions of the C library that QEMU finds here first.

use std::cell::Cell;
use std::os::raw::{c_int, c_long, c_ulong, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::cpuid::rewrite;
use crate::description::parse;
use crate::filter;
use crate::kvm::{self, CpuidEntry, EnableCap, Filter, Run};
use crate::report;
use crate::vcpu::{Answer, Machine};

/// A virtual CPU; never freed, because QEMU does not destroy any.
struct Vcpu {
    fd: c_int,
    id: usize,
    run: AtomicPtr<Run>,
}

static MACHINE: OnceLock<Option<Machine>> = OnceLock::new();
static VCPUS: Mutex<Vec<&'static Vcpu>> = Mutex::new(Vec::new());
/// KVM has been told to exit for the registers of this machine.
static ARMED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The CPU that this thread runs.
    static MINE: Cell<Option<&'static Vcpu>> = const { Cell::new(None) };
}

/// The description named in the environment, or nothing: then this library is not there.
fn machine() -> Option<&'static Machine> {
    MACHINE
        .get_or_init(|| {
            let path = std::env::var_os("CPUPEEK_MACHINE_FILE")?;
            let text = match std::fs::read_to_string(&path) {
                Ok(text) => text,
                Err(cause) => fail(&format!("cannot read {}: {cause}", path.to_string_lossy())),
            };
            match parse(&text) {
                Ok(description) => Some(Machine::new(description)),
                Err(line) => fail(&format!("not a line of a description: {line}")),
            }
        })
        .as_ref()
}

fn fail(sentence: &str) -> ! {
    eprintln!("cpupeek-machine: {sentence}");
    std::process::exit(1)
}

/// Takes the place of the C library's.
///
/// # Safety
///
/// As for ioctl(2).
#[no_mangle]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    let Some(machine) = machine().filter(|_| (request >> 8) & 0xff == 0xae) else {
        // SAFETY: by the contract of this function.
        return unsafe { kvm::ioctl(fd, request, argument) };
    };
    // SAFETY: KVM's requests take what their names say, by the contract of this function.
    unsafe {
        match request {
            kvm::RUN => run(machine, fd, argument),
            kvm::CREATE_VCPU => create_vcpu(machine, fd, argument),
            kvm::SET_CPUID2 => set_cpuid(machine, fd, argument),
            kvm::ENABLE_CAP => enable_cap(fd, argument.cast()),
            kvm::SET_MSR_FILTER => set_filter(machine, fd, &*argument.cast::<Filter>()),
            _ => kvm::ioctl(fd, request, argument),
        }
    }
}

/// Takes the place of the C library's: the run page of a virtual CPU is mapped here.
///
/// # Safety
///
/// As for mmap(2).
#[no_mangle]
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: c_long,
) -> *mut c_void {
    // SAFETY: by the contract of this function.
    let at = unsafe {
        libc::syscall(
            libc::SYS_mmap,
            address,
            length,
            protection,
            flags,
            fd,
            offset,
        ) as *mut c_void
    };
    if fd >= 0 && offset == 0 && at != libc::MAP_FAILED {
        if let Some(vcpu) = find(fd) {
            vcpu.run.store(at.cast(), Ordering::Release);
        }
    }
    at
}

/// The name under which a program built for large files calls it.
///
/// # Safety
///
/// As for mmap(2).
#[no_mangle]
pub unsafe extern "C" fn mmap64(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: c_long,
) -> *mut c_void {
    // SAFETY: by the contract of this function.
    unsafe { mmap(address, length, protection, flags, fd, offset) }
}

fn find(fd: c_int) -> Option<&'static Vcpu> {
    let vcpus = VCPUS.lock().unwrap_or_else(PoisonError::into_inner);
    vcpus.iter().find(|vcpu| vcpu.fd == fd).copied()
}

/// Runs the guest until there is an exit that is not ours.
unsafe fn run(machine: &Machine, fd: c_int, argument: *mut c_void) -> c_int {
    let mine = MINE.get().filter(|vcpu| vcpu.fd == fd).or_else(|| find(fd));
    MINE.set(mine);
    loop {
        // SAFETY: by the contract of ioctl().
        let result = unsafe { kvm::ioctl(fd, kvm::RUN, argument) };
        let page = mine.map_or(ptr::null_mut(), |v| v.run.load(Ordering::Acquire));
        let (0, Some(vcpu), false) = (result, mine, page.is_null()) else {
            return result;
        };
        // SAFETY: QEMU keeps the page mapped for as long as the CPU exists. Only this thread runs the CPU, and while it
        // is not in the kernel nobody writes the fields that concern an MSR exit.
        if machine.answer(vcpu.id, unsafe { &mut *page }) == Answer::NotOurs {
            return result;
        }
    }
}

unsafe fn create_vcpu(machine: &Machine, vm: c_int, argument: *mut c_void) -> c_int {
    if !ARMED.swap(true, Ordering::AcqRel) {
        arm(machine, vm);
    }
    // SAFETY: by the contract of ioctl().
    let fd = unsafe { kvm::ioctl(vm, kvm::CREATE_VCPU, argument) };
    if fd >= 0 {
        let vcpu = Box::leak(Box::new(Vcpu {
            fd,
            id: argument as usize,
            run: AtomicPtr::new(ptr::null_mut()),
        }));
        VCPUS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(vcpu);
    }
    fd
}

/// For a QEMU that has asked for no exits before its first CPU.
fn arm(machine: &Machine, vm: c_int) {
    let mut cap = EnableCap {
        cap: kvm::CAP_USER_SPACE_MSR,
        flags: 0,
        args: [kvm::EXIT_ALL, 0, 0, 0],
        pad: [0; 64],
    };
    // SAFETY: both requests get the structure that they take.
    let status = unsafe { enable_cap(vm, &mut cap) | set_filter(machine, vm, &filter::empty()) };
    if status != 0 {
        fail("this KVM does not leave registers to user space (KVM_CAP_X86_USER_SPACE_MSR)");
    }
}

unsafe fn enable_cap(fd: c_int, cap: *mut EnableCap) -> c_int {
    // SAFETY: by the contract of ioctl(), `cap` is valid. A copy is changed, for it may be constant.
    unsafe {
        let mut copy = ptr::read(cap);
        if copy.cap == kvm::CAP_USER_SPACE_MSR {
            copy.args[0] |= kvm::EXIT_ALL;
        }
        kvm::ioctl(fd, kvm::ENABLE_CAP, ptr::addr_of_mut!(copy).cast())
    }
}

unsafe fn set_filter(machine: &Machine, vm: c_int, qemu: &Filter) -> c_int {
    ARMED.store(true, Ordering::Release);
    let mut ours = machine.clusters();
    // SAFETY: by the contract of ioctl(), the filter is one that KVM would accept.
    match unsafe { filter::merge(qemu, &mut ours) } {
        // SAFETY: the bitmaps of the merged filter live until `ours` and `qemu` go.
        Some(mut merged) => unsafe {
            kvm::ioctl(vm, kvm::SET_MSR_FILTER, ptr::addr_of_mut!(merged).cast())
        },
        None => fail("the registers are spread too widely for KVM's 16 filter ranges"),
    }
}

unsafe fn set_cpuid(machine: &Machine, fd: c_int, argument: *mut c_void) -> c_int {
    let Some(vcpu) = find(fd) else {
        // SAFETY: by the contract of ioctl().
        return unsafe { kvm::ioctl(fd, kvm::SET_CPUID2, argument) };
    };
    // SAFETY: struct kvm_cpuid2 is a count, a word of padding and as many entries.
    let entries = unsafe {
        let count = *argument.cast::<u32>() as usize;
        std::slice::from_raw_parts(argument.cast::<u8>().add(8).cast::<CpuidEntry>(), count)
    };
    let entries = rewrite(entries, &machine.rules(vcpu.id));
    let mut words = vec![entries.len() as u32, 0];
    for entry in &entries {
        words.extend([entry.function, entry.index, entry.flags]);
        words.extend(entry.registers);
        words.extend(entry.padding);
    }
    // SAFETY: `words` is laid out as struct kvm_cpuid2.
    unsafe { kvm::ioctl(fd, kvm::SET_CPUID2, words.as_mut_ptr().cast()) }
}

/// Writes the report when QEMU exits.
extern "C" fn at_exit() {
    if let Some(Some(machine)) = MACHINE.get() {
        if let Some(path) = &machine.report {
            if let Err(cause) = std::fs::write(path, report::text(machine)) {
                eprintln!("cpupeek-machine: cannot write {}: {cause}", path.display());
            }
        }
    }
}

#[used]
#[link_section = ".fini_array"]
static AT_EXIT: extern "C" fn() = at_exit;
