//! Quotas of volumes that are not in use: usage and limits of users, groups and projects.

/// The owners that a quota file is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum OwnerKind {
    /// Users.
    User,
    /// Groups.
    Group,
    /// Projects, which only ext has.
    Project,
}

impl OwnerKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::User, Self::Group, Self::Project];

    /// The name of one such owner.
    ///
    /// ```
    /// use seekless_fs::quota::OwnerKind;
    ///
    /// assert_eq!(OwnerKind::ALL.map(OwnerKind::name), ["user", "group", "project"]);
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Group => "group",
            Self::Project => "project",
        }
    }
}

/// Usage of one resource and its limits, in bytes of space or in inodes. A limit of zero is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Balance {
    /// Usage.
    pub used: u64,
    /// The soft limit.
    pub soft: u64,
    /// The hard limit.
    pub hard: u64,
    /// Whether usage exceeds a limit by the rules of the format: on ext it is more than the soft or
    /// the hard limit, on UFS it has reached the soft limit.
    pub over: bool,
    /// End of the grace period, in seconds since 1970; 0 if it has not begun.
    pub expires: i64,
}

/// The quota of one owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OwnerQuota {
    /// The number of the user, group or project.
    pub id: u32,
    /// Space, in bytes.
    pub space: Balance,
    /// Inodes.
    pub inodes: Balance,
}

/// Grace periods, in seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Grace {
    /// Of soft limits of space.
    pub space: u64,
    /// Of soft limits of inodes.
    pub inodes: u64,
}

/// The contents of a quota file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QuotaBook {
    /// The owners.
    pub kind: OwnerKind,
    /// The grace periods of all owners.
    pub grace: Grace,
    /// The owners with usage or limits, in order of their numbers.
    pub quotas: Vec<OwnerQuota>,
}

/// Usage of one owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OwnerUsage {
    /// Space, in bytes.
    pub space: u64,
    /// Inodes.
    pub inodes: u64,
}

/// Usage in a quota file that is not the usage of the files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuotaDifference {
    /// The kind of owner.
    pub kind: OwnerKind,
    /// The owner.
    pub id: u32,
    /// Usage in the quota file.
    pub recorded: OwnerUsage,
    /// Usage counted from the inodes.
    pub counted: OwnerUsage,
}

/// Quota files compared with the usage of all files.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QuotaComparison {
    /// The kinds of owners that were compared.
    pub compared: Vec<OwnerKind>,
    /// Kinds of owners whose quota file is missing or damaged, with the reason.
    pub unusable: Vec<(OwnerKind, String)>,
    /// Differences, by kind and number.
    pub differences: Vec<QuotaDifference>,
    /// A reason for which the counted usage may be wrong: the volume is not in order.
    pub caveat: Option<String>,
}

impl QuotaComparison {
    /// Whether the quota files are right.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.differences.is_empty() && self.unusable.is_empty()
    }
}

/// Quota files to work on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QuotaSelection {
    /// The kinds of owners, which need a quota file; without any, those that have one.
    pub kinds: Vec<OwnerKind>,
    /// Path of the users' quota file in the volume, on UFS.
    pub user_file: Option<String>,
    /// Path of the groups' quota file in the volume, on UFS.
    pub group_file: Option<String>,
}

impl QuotaSelection {
    /// Whether a kind of owners is among those to work on, if it has a quota file.
    #[must_use]
    pub fn includes(&self, kind: OwnerKind) -> bool {
        self.kinds.is_empty() || self.kinds.contains(&kind)
    }

    /// The path given for the quota file of a kind.
    #[must_use]
    pub fn path(&self, kind: OwnerKind) -> Option<&str> {
        match kind {
            OwnerKind::User => self.user_file.as_deref(),
            OwnerKind::Group => self.group_file.as_deref(),
            OwnerKind::Project => None,
        }
    }
}

/// New limits of one resource, in bytes of space or in inodes; 0 removes a limit, `None` keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LimitChange {
    /// The soft limit.
    pub soft: Option<u64>,
    /// The hard limit.
    pub hard: Option<u64>,
}

/// A change of limits or grace periods in a quota file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QuotaChange {
    /// New limits of an owner. Limits of space that are no multiple of the format's unit (512 bytes
    /// on UFS, 1 KiB on ext) are rounded up.
    Limits {
        /// The number of the user, group or project.
        id: u32,
        /// Limits of space, in bytes.
        space: LimitChange,
        /// Limits of inodes.
        inodes: LimitChange,
    },
    /// New grace periods of all owners, in seconds; `None` keeps one. Periods that have begun go on.
    Grace {
        /// Of soft limits of space.
        space: Option<u64>,
        /// Of soft limits of inodes.
        inodes: Option<u64>,
    },
}
