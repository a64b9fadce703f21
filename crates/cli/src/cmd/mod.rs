//! One file for each command: that of `build` is `compose`, since tools take a folder `build` for
//! their output.

pub(crate) mod age;
pub(crate) mod cat;
pub(crate) mod check;
pub(crate) mod compare;
pub(crate) mod compose;
pub(crate) mod cp;
pub(crate) mod crash;
pub(crate) mod disk;
pub(crate) mod generate;
pub(crate) mod info;
pub(crate) mod lab;
pub(crate) mod layout;
pub(crate) mod ls;
pub(crate) mod manifest;
pub(crate) mod map;
pub(crate) mod mkfs;
pub(crate) mod model;
pub(crate) mod mount;
pub(crate) mod optimize;
pub(crate) mod record;
pub(crate) mod relayout;
pub(crate) mod score;
pub(crate) mod trace;
pub(crate) mod tune;
pub(crate) mod watch;
