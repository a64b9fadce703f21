//! The kernel's trace events through tracefs, read in binary
//! (`Documentation/trace/ftrace.rst`, `ring-buffer-map.rst`).
//!
//! Events are recorded in an instance of our own, which vanishes with the [`Instance`], so that
//! other users' tracing is not disturbed. The next run removes an instance that a killed process
//! left.

mod format;
mod instance;
mod ring;

pub use format::{Field, Format};
pub use instance::{EARLY, Filter, Instance, Root, Threads};
pub use ring::{Lost, Records};

use crate::mounts::DeviceNumber;
use std::collections::HashMap;

/// A traced event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traced {
    /// Nanoseconds of the monotonic clock.
    pub time: u64,
    /// Thread number.
    pub tid: u32,
    /// The event's kind and fields.
    pub what: EventKind,
}

/// Kind and fields of a traced event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A read asked for pages of a file; last included.
    Asked {
        /// Inode number.
        ino: u64,
        /// First page.
        first: u64,
        /// Last page.
        last: u64,
    },
    /// A mapped page was touched that was not in the page tables.
    Faulted {
        /// Inode number.
        ino: u64,
        /// Page.
        page: u64,
    },
    /// A fault mapped the resident ones among these pages (fault-around).
    Mapped {
        /// Inode number.
        ino: u64,
        /// First page.
        first: u64,
        /// Last page.
        last: u64,
    },
    /// Pages were added to the page cache.
    Fetched {
        /// Inode number.
        ino: u64,
        /// First page.
        first: u64,
        /// Last page.
        last: u64,
    },
    /// A metadata block was accessed.
    Buffer {
        /// Block number in units of `size`; the kernel's field is called sector.
        block: u64,
        /// Bytes.
        size: u32,
    },
    /// An inode is about to be read from the disk.
    Loaded {
        /// Inode number.
        ino: u64,
    },
    /// An inode leaves memory.
    Evicted {
        /// Inode number.
        ino: u64,
    },
    /// A thread was renamed.
    Renamed {
        /// The new name.
        comm: Box<str>,
    },
    /// A thread forked.
    Forked {
        /// The new thread.
        child: u32,
    },
    /// A request was submitted to a device.
    Queued {
        /// In sectors of 512 bytes of the whole device, whatever its partitions.
        sector: u64,
        /// Sectors.
        sectors: u32,
        /// Whether it reads.
        read: bool,
    },
    /// A request was issued to a device.
    Issued {
        /// In sectors of 512 bytes.
        sector: u64,
        /// Bytes.
        bytes: u32,
        /// Whether it reads.
        read: bool,
        /// Whether the submitter called it metadata.
        metadata: bool,
    },
}

/// The supported events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum Source {
    /// `filemap:mm_filemap_get_pages` (6.6 and later).
    Asked,
    /// `filemap:mm_filemap_fault`.
    Faulted,
    /// `filemap:mm_filemap_map_pages`.
    Mapped,
    /// `filemap:mm_filemap_add_to_page_cache`.
    Fetched,
    /// `block:block_touch_buffer`.
    Buffer,
    /// `ext4:ext4_load_inode`.
    Loaded,
    /// `ext4:ext4_evict_inode`.
    Evicted,
    /// `task:task_rename`.
    Renamed,
    /// `sched:sched_process_fork`.
    Forked,
    /// `block:block_bio_queue`.
    Queued,
    /// `block:block_rq_issue`.
    Issued,
}

impl Source {
    /// The event's directory under `events`.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Asked => "filemap/mm_filemap_get_pages",
            Self::Faulted => "filemap/mm_filemap_fault",
            Self::Mapped => "filemap/mm_filemap_map_pages",
            Self::Fetched => "filemap/mm_filemap_add_to_page_cache",
            Self::Buffer => "block/block_touch_buffer",
            Self::Loaded => "ext4/ext4_load_inode",
            Self::Evicted => "ext4/ext4_evict_inode",
            Self::Renamed => "task/task_rename",
            Self::Forked => "sched/sched_process_fork",
            Self::Queued => "block/block_bio_queue",
            Self::Issued => "block/block_rq_issue",
        }
    }

    /// The field that contains the device, to filter by.
    #[must_use]
    pub const fn device_field(self) -> Option<&'static str> {
        match self {
            Self::Asked | Self::Faulted | Self::Mapped | Self::Fetched => Some("s_dev"),
            Self::Buffer | Self::Loaded | Self::Evicted | Self::Queued | Self::Issued => {
                Some("dev")
            }
            Self::Renamed | Self::Forked => None,
        }
    }

    /// Decodes an event from its bytes; `None` if a field is missing.
    fn decode(self, format: &Format, bytes: &[u8]) -> Option<EventKind> {
        let field = |name: &str| format.number(name, bytes);
        Some(match self {
            Self::Asked => EventKind::Asked {
                ino: field("i_ino")?,
                first: field("index")?,
                last: field("last_index")?,
            },
            Self::Faulted => EventKind::Faulted { ino: field("i_ino")?, page: field("index")? },
            Self::Mapped => EventKind::Mapped {
                ino: field("i_ino")?,
                first: field("index")?,
                last: field("last_index")?,
            },
            Self::Fetched => {
                let first = field("index")?;
                // Older kernels add single pages and lack the field.
                let pages = 1u64.checked_shl(field("order").unwrap_or(0) as u32)?;
                EventKind::Fetched { ino: field("i_ino")?, first, last: first + (pages - 1) }
            }
            Self::Buffer => EventKind::Buffer {
                block: field("sector")?,
                size: u32::try_from(field("size")?).ok()?,
            },
            Self::Loaded => EventKind::Loaded { ino: field("ino")? },
            Self::Evicted => EventKind::Evicted { ino: field("ino")? },
            Self::Renamed => EventKind::Renamed { comm: format.text("newcomm", bytes)?.into() },
            Self::Forked => EventKind::Forked { child: u32::try_from(field("child_pid")?).ok()? },
            Self::Queued => EventKind::Queued {
                sector: field("sector")?,
                sectors: u32::try_from(field("nr_sector")?).ok()?,
                read: reads(&format.text("rwbs", bytes)?),
            },
            Self::Issued => {
                let kind = format.text("rwbs", bytes)?;
                EventKind::Issued {
                    sector: field("sector")?,
                    bytes: u32::try_from(field("bytes")?).ok()?,
                    read: reads(&kind),
                    metadata: kind.contains('M'),
                }
            }
        })
    }
}

/// Whether an operation reads, in the notation of `blk_fill_rwbs`.
fn reads(kind: &str) -> bool {
    kind.starts_with('R') || kind.starts_with("FR")
}

/// Decodes records into events.
#[derive(Debug, Default)]
pub struct Decoder {
    formats: HashMap<u16, (Source, Format)>,
    /// The only device whose events are decoded, if set.
    device: Option<DeviceNumber>,
}

impl Decoder {
    /// Adds an event.
    pub fn add(&mut self, source: Source, format: Format) {
        self.formats.insert(format.id, (source, format));
    }

    /// Drops events of other devices, if the kernel has not done so.
    pub fn only(&mut self, device: DeviceNumber) {
        self.device = Some(device);
    }

    /// Decodes a record; `None` for an unknown event or one of another device.
    #[must_use]
    pub fn decode(&self, time: u64, bytes: &[u8]) -> Option<Traced> {
        let id = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
        let (source, format) = self.formats.get(&id)?;
        if let (Some(device), Some(field)) = (self.device, source.device_field())
            && format.number(field, bytes)? != device.in_kernel()
        {
            return None;
        }
        let tid = u32::from_ne_bytes(bytes.get(4..8)?.try_into().ok()?);
        let what = source.decode(format, bytes)?;
        // A rename belongs to the renamed thread, which need not be the current one.
        let tid = match source {
            Source::Renamed => u32::try_from(format.number("pid", bytes)?).ok()?,
            _ => tid,
        };
        Some(Traced { time, tid, what })
    }
}
