// SPDX-License-Identifier: GPL-2.0

//! Keeps the CPU numbers of threads in words of their memory.

use super::{
    copy::fetch_sized,
    DeviceFile, //
};
use crate::{
    kapi::{
        errno::eopnotsupp,
        preempt_notifier::{
            Callbacks,
            Current,
            Follow,
            Notifiers, //
        },
        regs,
        task::AddressSpace,
        uapi,
        user_ops::put_u32, //
    },
    logic::cpu_word::CpuWord, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
    uaccess::UserPtr, //
};

/// The words of all threads, and what became of them.
pub(crate) struct CpuWords {
    notifiers: Option<Notifiers>,
    live: Atomic<u64>,
    writes: Atomic<u64>,
    faults: Atomic<u64>,
}

impl CpuWords {
    /// None can be set unless `wanted`, and in kernels that cannot tell where threads run.
    pub(crate) fn new(wanted: bool) -> Result<Arc<Self>> {
        let notifiers = wanted.then(Notifiers::enable).and_then(|enabled| {
            let missing = |_: &Error| {
                pr_warn!("this kernel has no preemption notifiers, and so no CPU words\n")
            };
            enabled.inspect_err(missing).ok()
        });
        let words = Self {
            notifiers,
            live: Atomic::new(0),
            writes: Atomic::new(0),
            faults: Atomic::new(0),
        };
        Ok(Arc::new(words, GFP_KERNEL)?)
    }

    /// The feature bit, if words can be set.
    pub(super) fn features(&self) -> u64 {
        self.notifiers
            .as_ref()
            .map_or(0, |_| uapi::CPUPEEK_FEATURE_CPU_WORD.into())
    }

    /// How many threads have a word, those included that have not noticed its end.
    pub(super) fn live(&self) -> u64 {
        self.live.load(Relaxed)
    }

    /// How often a word was written.
    pub(super) fn writes(&self) -> u64 {
        self.writes.load(Relaxed)
    }

    /// How many words ended because they could not be written any more.
    pub(super) fn faults(&self) -> u64 {
        self.faults.load(Relaxed)
    }
}

/// A descriptor's side of the words that were set on it. They end with it.
pub(super) struct WordSetter {
    words: Arc<CpuWords>,
    closed: Option<Arc<Atomic<bool>>>,
}

impl WordSetter {
    /// For a new descriptor.
    pub(super) fn new(words: Arc<CpuWords>) -> Result<Self> {
        let closed = match words.notifiers {
            Some(_) => Some(Arc::new(Atomic::new(false), GFP_KERNEL_ACCOUNT)?),
            None => None,
        };
        Ok(Self { words, closed })
    }

    /// The feature bit, if words can be set.
    pub(super) fn features(&self) -> u64 {
        self.words.features()
    }

    /// The word of the calling thread, if it was set here.
    fn current(&self) -> Option<Current<Word>> {
        let closed = self.closed.as_ref()?;
        Current::<Word>::get().filter(|word| Arc::ptr_eq(&word.closed, closed))
    }

    fn set(&self, address: u64) -> Result {
        if address % size_of::<u32>() as u64 != 0 {
            return Err(EINVAL);
        }
        let (Some(notifiers), Some(closed)) = (&self.words.notifiers, &self.closed) else {
            return Err(eopnotsupp());
        };
        if let Some(word) = Current::<Word>::get() {
            if !word.is_over() {
                return Err(EBUSY);
            }
            word.end();
        }
        let space = AddressSpace::current().ok_or(EFAULT)?;
        self.words.live.add(1u64, Relaxed);
        let word = Word {
            words: self.words.clone(),
            closed: closed.clone(),
            space,
            address: address as usize,
            state: CpuWord::new(),
        };
        if notifiers.follow(word)? {
            Ok(())
        } else {
            Err(EFAULT)
        }
    }

    fn clear(&self) -> Result {
        let word = self.current().ok_or(ENOENT)?;
        word.retire();
        word.end();
        Ok(())
    }
}

impl Drop for WordSetter {
    fn drop(&mut self) {
        if let Some(closed) = &self.closed {
            closed.store(true, Relaxed);
        }
        // Other threads notice by themselves.
        let _ = self.clear();
    }
}

/// The word of a thread, which is meant by "the thread" here.
struct Word {
    words: Arc<CpuWords>,
    /// The descriptor that it was set on is closed.
    closed: Arc<Atomic<bool>>,
    /// Where the word is. After exec the thread has another one, perhaps of a setuid program, and
    /// none when it exits.
    space: AddressSpace,
    address: usize,
    state: CpuWord,
}

static CALLBACKS: Callbacks<Word> = Callbacks::new();

impl Word {
    /// Whether it must not be written any more. For the thread itself.
    fn is_over(&self) -> bool {
        self.closed.load(Relaxed) || !self.space.is_current()
    }

    fn put(&self, value: u32) -> Result {
        put_u32(UserPtr::from_addr(self.address), value)
    }

    /// Leaves no number in the word, if it is still there. For the thread itself.
    fn retire(&self) {
        if self.space.is_current() {
            // It is over in any case.
            let _ = self.put(uapi::CPUPEEK_CONST_NO_CPU);
        }
    }
}

impl Follow for Word {
    const CALLBACKS: &'static Callbacks<Self> = &CALLBACKS;

    fn moved(&self, cpu: u32) -> bool {
        self.state.moved(cpu, self.is_over())
    }

    fn work(&self) -> bool {
        if self.is_over() {
            self.retire();
            return false;
        }
        let written = self.state.write(regs::current_cpu, |cpu| self.put(cpu));
        match written {
            Ok(()) => self.words.writes.add(1u64, Relaxed),
            Err(_) => self.words.faults.add(1u64, Relaxed),
        }
        written.is_ok()
    }
}

impl Drop for Word {
    fn drop(&mut self) {
        self.words.live.fetch_sub(1u64, Relaxed);
    }
}

impl DeviceFile {
    #[inline(never)]
    pub(super) fn set_cpu_word(&self, arg: UserPtr, size: usize) -> Result {
        let header: uapi::CpuWord = fetch_sized(arg, size, |header: &uapi::CpuWord| header.size)?;
        if header.flags != 0 {
            return Err(EINVAL);
        }
        self.setter.set(header.address)
    }

    #[inline(never)]
    pub(super) fn clear_cpu_word(&self) -> Result {
        self.setter.clear()
    }
}
