//! see interfaces
