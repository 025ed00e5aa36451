// SPDX-License-Identifier: GPL-2.0

//! What `preempt_notifier.rs` has, for kernels without preemption notifiers: nobody is followed.

use super::errno::eopnotsupp;
use core::{
    convert::Infallible,
    marker::PhantomData,
    ops::Deref, //
};
use kernel::prelude::*;

/// Follows a thread.
pub(crate) trait Follow: Send + Sync + Sized + 'static {
    /// The callbacks.
    #[allow(dead_code, reason = "there is nobody to call")]
    const CALLBACKS: &'static Callbacks<Self>;

    /// The thread has got `cpu`.
    #[allow(dead_code, reason = "there is nobody to call it")]
    fn moved(&self, cpu: u32) -> bool;

    /// Runs in the thread.
    #[allow(dead_code, reason = "there is nobody to call it")]
    fn work(&self) -> bool;
}

/// Callbacks of the scheduler for a `T`.
pub(crate) struct Callbacks<T>(PhantomData<fn(T)>);

impl<T: Follow> Callbacks<T> {
    /// For a `static`.
    pub(crate) const fn new() -> Self {
        Self(PhantomData)
    }
}

/// Cannot be made.
pub(crate) struct Notifiers(Infallible);

impl Notifiers {
    /// `EOPNOTSUPP`.
    pub(crate) fn enable() -> Result<Self> {
        Err(eopnotsupp())
    }

    /// Cannot be called.
    pub(crate) fn follow<T: Follow>(&self, _target: T) -> Result<bool> {
        match self.0 {}
    }
}

/// Cannot be made.
pub(crate) struct Current<T>(Infallible, PhantomData<T>);

impl<T: Follow> Current<T> {
    /// `None`.
    pub(crate) fn get() -> Option<Self> {
        None
    }

    /// Cannot be called.
    pub(crate) fn end(self) {
        match self.0 {}
    }
}

impl<T: Follow> Deref for Current<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self.0 {}
    }
}
