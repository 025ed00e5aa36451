// SPDX-License-Identifier: GPL-2.0

//! Following a thread from CPU to CPU.
//!
//! C headers: [`include/linux/preempt.h`](srctree/include/linux/preempt.h),
//! [`include/linux/task_work.h`](srctree/include/linux/task_work.h),
//! [`include/linux/irq_work.h`](srctree/include/linux/irq_work.h)
//!
//! # The life of a follower
//!
//! A follower is the private data of a file without a name and number, which the kernel frees it
//! with, in process context. The file's operations hold the module, and the kernel lets go of that
//! after the last of our code has run, which no reference count of ours could see to.
//!
//! References to the file are held by
//!
//! - the *link*, while the notifier is on the thread's list;
//! - *task work*, while it is queued, since it cannot be cancelled.
//!
//! Only the thread itself changes its list, and not from a notifier. So the link ends
//!
//! - in task work or a system call of the thread's, by unlinking; or
//! - when the thread has been scheduled for the last time. The notifier stays on the dead thread's
//!   list, which nobody looks at any more, and its last callback, which runs under the run queue's
//!   lock, has an interrupt of this CPU let go of the file.

use super::{
    file::{
        anonymous_file,
        Descriptor, //
    },
    helpers,
};
use core::{
    cell::UnsafeCell,
    marker::{
        PhantomData,
        PhantomPinned, //
    },
    ops::Deref,
    pin::Pin, //
};
use kernel::{
    bindings,
    fs::File,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Relaxed, //
        },
    },
    types::Opaque,
    uaccess::UserPtr, //
};

/// Follows a thread.
pub(crate) trait Follow: Send + Sync + Sized + 'static {
    /// The callbacks, in a `static` of the type's own, by which its notifiers are told from others.
    const CALLBACKS: &'static Callbacks<Self>;

    /// The thread has got `cpu`. Returns whether to call [`Follow::work`] before it returns to user
    /// space. Runs in the thread with preemption off, perhaps in the middle of `work`.
    fn moved(&self, cpu: u32) -> bool;

    /// Runs in the thread, and may sleep. Returns whether to go on following it.
    fn work(&self) -> bool;
}

/// Callbacks of the scheduler for a `T`.
pub(crate) struct Callbacks<T>(bindings::preempt_ops, PhantomData<T>);

// SAFETY: Function pointers, which do not change.
unsafe impl<T> Sync for Callbacks<T> {}

impl<T: Follow> Callbacks<T> {
    /// For a `static`.
    pub(crate) const fn new() -> Self {
        let ops = bindings::preempt_ops {
            sched_in: Some(Follower::<T>::sched_in),
            sched_out: Some(Follower::<T>::sched_out),
        };
        Self(ops, PhantomData)
    }

    fn as_ptr(&'static self) -> *mut bindings::preempt_ops {
        (&raw const self.0).cast_mut()
    }
}

/// The scheduler looks for notifiers at every switch, as long as this exists.
pub(crate) struct Notifiers(());

impl Notifiers {
    /// Has the scheduler look for them. For process context.
    pub(crate) fn enable() -> Result<Self> {
        // SAFETY: Process context, no locks are held.
        unsafe { bindings::preempt_notifier_inc() };
        Ok(Self(()))
    }

    /// Follows the calling thread with `target`, and calls [`Follow::work`] once.
    ///
    /// Returns whether that went on. Errors: [`ENOMEM`], `ENFILE`.
    pub(crate) fn follow<T: Follow>(&self, target: T) -> Result<bool> {
        let follower = KBox::pin_init(Follower::new(target), GFP_KERNEL_ACCOUNT)?;
        let follower: *const Follower<T> = {
            let place = &raw const *follower;
            let file = anonymous_file(c"[cpupeek-follower]", follower)?;
            // SAFETY: The follower is the file's now, which lives as long as our reference, and
            // nobody else has seen it.
            unsafe { *(*place).file.get() = ARef::into_raw(file).as_ptr().cast() };
            place
        };
        // SAFETY: The file, whose reference is the link's from now on, is kept by that.
        let follower = unsafe { &*follower };
        // INVARIANT: Linked.
        follower.linked.store(true, Relaxed);
        // SAFETY: The notifier is initialised, and on no list. `self` keeps notifiers enabled.
        unsafe { helpers::cpupeek_helper_preempt_notifier_register(follower.notifier.get()) };
        let goes_on = follower.target.work();
        if !goes_on {
            follower.unlink();
        }
        Ok(goes_on)
    }
}

impl Drop for Notifiers {
    fn drop(&mut self) {
        // SAFETY: Matches the call in `enable()`; process context, no locks are held.
        unsafe { bindings::preempt_notifier_dec() };
    }
}

/// Follows a thread, which is meant by "the thread" here.
///
/// # Invariants
///
/// - `file` is the file whose private data this is, from before it is linked.
/// - `linked` says whether `notifier` is on the thread's list, which includes that of a dead thread;
///   only the thread changes it. While it is set, a reference to `file` is held for it.
/// - While `work` is queued on the thread, a reference to `file` is held for it. It is queued by the
///   thread alone.
#[pin_data(PinnedDrop)]
pub(crate) struct Follower<T: Follow> {
    #[pin]
    notifier: Opaque<bindings::preempt_notifier>,
    #[pin]
    work: Opaque<bindings::callback_head>,
    #[pin]
    last: Opaque<bindings::irq_work>,
    file: UnsafeCell<*mut bindings::file>,
    linked: Atomic<bool>,
    target: T,
    #[pin]
    _pin: PhantomPinned,
}

// SAFETY: What is not `T`, which is `Send`, is the kernel's or does not change while shared.
unsafe impl<T: Follow> Send for Follower<T> {}
// SAFETY: As above, and `T` is `Sync`.
unsafe impl<T: Follow> Sync for Follower<T> {}

impl<T: Follow> Follower<T> {
    fn new(target: T) -> impl PinInit<Self> {
        pin_init!(Self {
            notifier <- Opaque::ffi_init(|notifier: *mut bindings::preempt_notifier| {
                // SAFETY: The slot may be written, and the callbacks live as long as the module.
                unsafe {
                    notifier.write(bindings::preempt_notifier::default());
                    (*notifier).ops = T::CALLBACKS.as_ptr();
                }
            }),
            work <- Opaque::ffi_init(|work: *mut bindings::callback_head| {
                let head = bindings::callback_head {
                    next: core::ptr::null_mut(),
                    func: Some(Self::run),
                };
                // SAFETY: The slot may be written.
                unsafe { work.write(head) };
            }),
            last <- Opaque::ffi_init(|work: *mut bindings::irq_work| {
                // SAFETY: The slot may be written.
                unsafe { helpers::cpupeek_helper_init_hard_irq_work(work, Some(Self::let_go)) };
            }),
            file: UnsafeCell::new(core::ptr::null_mut()),
            linked: Atomic::new(false),
            target,
            _pin: PhantomPinned,
        })
    }

    /// The file.
    fn file(&self) -> *mut bindings::file {
        // SAFETY: Written before the follower is linked, and before anybody else can see it.
        unsafe { *self.file.get() }
    }

    /// Ends the link. For the thread itself, in a system call or task work.
    fn unlink(&self) {
        if !self.linked.load(Relaxed) {
            return;
        }
        // INVARIANT: No longer linked.
        self.linked.store(false, Relaxed);
        // SAFETY: Linked, so the notifier is on the list of the calling thread, which does not walk
        // its list now. The reference was the link's, and its caller has another, or does not touch
        // the follower after this.
        unsafe {
            helpers::cpupeek_helper_preempt_notifier_unregister(self.notifier.get());
            bindings::fput(self.file());
        }
    }

    /// # Safety
    ///
    /// `notifier` is that of a linked follower, and the calling thread its own.
    unsafe fn of_notifier<'a>(notifier: *mut bindings::preempt_notifier) -> &'a Self {
        let offset = core::mem::offset_of!(Self, notifier);
        // SAFETY: By the contract, it is that field of a follower, which the link keeps.
        unsafe { &*notifier.byte_sub(offset).cast::<Self>() }
    }

    /// # Safety
    ///
    /// For the kernel, as `preempt_ops.sched_in`.
    unsafe extern "C" fn sched_in(notifier: *mut bindings::preempt_notifier, cpu: c_int) {
        // SAFETY: The kernel calls this for what is on the calling thread's list.
        let follower = unsafe { Self::of_notifier(notifier) };
        if !follower.target.moved(cpu as u32) {
            return;
        }
        // SAFETY: The work is initialised; `moved()` asks for it only when it is not queued, and the
        // reference for it is taken before it can run: it runs in this very thread, later. A thread
        // that is too dead for work has none.
        unsafe {
            let ret = bindings::task_work_add(
                bindings::get_current(),
                follower.work.get(),
                bindings::task_work_notify_mode_TWA_RESUME,
            );
            if ret == 0 {
                bindings::get_file(follower.file());
            }
        }
    }

    /// # Safety
    ///
    /// For the kernel, as `preempt_ops.sched_out`.
    unsafe extern "C" fn sched_out(
        notifier: *mut bindings::preempt_notifier,
        _next: *mut bindings::task_struct,
    ) {
        // SAFETY: Has no preconditions.
        if !unsafe { helpers::cpupeek_helper_is_current_dead() } {
            return;
        }
        // SAFETY: The kernel calls this for what is on the calling thread's list.
        let follower = unsafe { Self::of_notifier(notifier) };
        // SAFETY: Initialised, and queued once: a dead thread is not scheduled again. This CPU takes
        // the interrupt when it has left the scheduler, which is through with the list then.
        unsafe { bindings::irq_work_queue(follower.last.get()) };
    }

    /// # Safety
    ///
    /// For the kernel, as `irq_work.func` of a follower's `last`.
    unsafe extern "C" fn let_go(work: *mut bindings::irq_work) {
        let offset = core::mem::offset_of!(Self, last);
        // SAFETY: It is that field of a follower, which is linked to a dead thread.
        let follower = unsafe { &*work.byte_sub(offset).cast::<Self>() };
        // SAFETY: The reference was the link's. Dropping the last one in an interrupt leaves the
        // rest to a thread, which waits for the end of this.
        unsafe { bindings::fput(follower.file()) };
    }

    /// # Safety
    ///
    /// For the kernel, as `callback_head.func` of a follower's `work`.
    unsafe extern "C" fn run(work: *mut bindings::callback_head) {
        let offset = core::mem::offset_of!(Self, work);
        // SAFETY: It is that field of a follower, which the work's reference keeps.
        let follower = unsafe { &*work.byte_sub(offset).cast::<Self>() };
        // A system call may have unlinked it meanwhile.
        if follower.linked.load(Relaxed) && !follower.target.work() {
            follower.unlink();
        }
        // SAFETY: The reference was the work's, which is no longer queued; but `target.work()` may
        // have been interrupted by a callback that queued it again, with a reference of its own.
        unsafe { bindings::fput(follower.file()) };
    }
}

/// The follower of the calling thread, in a system call of it.
pub(crate) struct Current<T: Follow> {
    follower: *const Follower<T>,
    _file: ARef<File>,
}

impl<T: Follow> Current<T> {
    /// It, if there is one.
    pub(crate) fn get() -> Option<Self> {
        // SAFETY: Looks at the list of the calling thread, which nobody else changes. What is found
        // is a follower's, since nobody else has its callbacks.
        let follower = unsafe {
            let ops = T::CALLBACKS.as_ptr();
            let notifier = helpers::cpupeek_helper_find_preempt_notifier(ops);
            if notifier.is_null() {
                return None;
            }
            Follower::<T>::of_notifier(notifier)
        };
        // SAFETY: The link keeps the file, of which nobody uses the position.
        let file = unsafe { File::from_raw_file(follower.file()) };
        Some(Self {
            follower,
            _file: file.into(),
        })
    }

    /// Follows the thread no longer.
    pub(crate) fn end(self) {
        // SAFETY: The file is kept by the reference.
        unsafe { &*self.follower }.unlink();
    }
}

impl<T: Follow> Deref for Current<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: The file is kept by the reference.
        unsafe { &(*self.follower).target }
    }
}

impl<T: Follow> Descriptor for Follower<T> {
    fn ioctl(&self, _cmd: u32, _arg: UserPtr) -> Result {
        Err(ENOTTY)
    }
}

#[pinned_drop]
impl<T: Follow> PinnedDrop for Follower<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: Process context, since files are freed there. The kernel touches the work for the
        // last time after the function has let go of the file.
        unsafe { bindings::irq_work_sync(self.last.get()) };
        if cfg!(CONFIG_PREEMPT_RT) {
            // There the kernel looks at the work once more after it has marked it as done, and
            // `irq_work_sync()` of work for hard interrupts does not wait for that. It does so with
            // interrupts off.
            //
            // SAFETY: Process context, not in an RCU read-side critical section.
            unsafe { bindings::synchronize_rcu() };
        }
    }
}
