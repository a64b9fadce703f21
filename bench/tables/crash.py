"""docs/crash.md: states after crashes. The campaigns that take longer are those of the other rows,
each with its command."""

from .page import Table, figure, filled
from .program import seekless

UFS, FAT = ["ufs1", "ufs2"], ["fat12", "fat16", "fat32"]
RANDOM = ["--workload", "random:10"]


def states(discipline, form, *search, holds=True):
    """How many states a search looked at, how many need a repair that asks, and how many fail."""
    found = seekless("crash", "run", "--discipline", discipline, "--format", form, *search, fails=not holds)
    if found["holds"] != holds:
        raise SystemExit(f"crash run {discipline} {form} {' '.join(search)}: holds: {found['holds']}")
    return found["states"], found["coverage"]["needs_y"], found["failing"]


def singles(*search):
    return ["--workload", "singles", *search]


def row_of(table, begins):
    return next(row for row in table.rows if row.startswith(begins))


def same(counts):
    """The one that several searches have in common."""
    (count,) = counts
    return [count]


def ufs_singles(report):
    orders = ["softdep", "sync", "normal"]
    return [states(order, form, *singles("--exhaustive"))[0] for order in orders for form in UFS]


def fat_singles(report):
    found = [states(order, form, *singles("--sample", "300")) for order in ["softdep", "sync"] for form in FAT]
    all_states, asking = [one[0] for one in found], [one[1] for one in found]
    return [min(all_states), max(all_states), min(asking), max(asking)]


def fat_unordered(report):
    found = [
        [states(order, form, *singles("--sample", "200"), holds=False) for form in ["fat12", "fat32"]]
        for order in ["async", "normal"]
    ]
    return [found[0][0][0], *(one[2] for order in found for one in order)]


def ext2_singles(report):
    found = [states(order, "ext2", *singles("--exhaustive")) for order in ["softdep", "sync", "normal"]]
    return [*(one[0] for one in found), sum(one[1] for one in found)]


def fat_pairs(report):
    found = {states(order, "fat12", "--workload", "pairs", "--sample", "20")[0] for order in ["softdep", "sync"]}
    return same(found)


def fat_random(report):
    search = ["--workload", "random:12", "--sample", "100"]
    return [
        states("softdep", "fat16", *search, "--sequences", "200")[0],
        states("softdep", "fat12", *search, "--sequences", "100", "--queue")[0],
    ]


def journals(report):
    search = [*RANDOM, "--sequences", "200", "--seed", "46", "--queue", "--sample", "40"]
    modes = [f"journal={mode}" for mode in ["ordered", "data", "writeback"]]
    found = [states(mode, form, *search)[0] for mode in modes for form in ["ext3", "ext4"]]
    return [*same(set(found)), sum(found)]


def ext2_ahead(report):
    ahead = ["--blocks", "ext2-next=8"]
    found = [
        states("softdep", "ext2", *singles("--sample", "100"), *ahead),
        states("softdep", "ext2", *RANDOM, "--sequences", "200", "--seed", "41", "--queue", "--sample", "40", *ahead),
    ]
    return [one[0] for one in found] + [one[1] for one in found]


def ext2_reserved(report):
    search = [*RANDOM, "--sequences", "100", "--queue", "--sample", "40", "--dirs", "linux-orlov"]
    inodes = [("dir-reserve=8", "42"), ("dir-reserve-hashed=8", "43")]
    return same({states("softdep", "ext2", *search, "--inodes", one, "--seed", seed)[0] for one, seed in inodes})


def ext4_goal(report):
    search = ["--dirs", "linux-orlov", "--blocks", "ext4-goal"]
    few = states("journal=ordered", "ext4", *singles("--sample", "60"), *search)[0]
    if report.quick:
        return [few]
    search += [*RANDOM, "--sequences", "150", "--queue", "--sample", "40"]
    return [
        few,
        states("journal=ordered", "ext4", *search, "--inodes", "parent", "--seed", "44")[0],
        states("journal=writeback", "ext4", *search, "--inodes", "dir-reserve=16", "--seed", "45")[0],
    ]


ROWS = {
    "`softdep`, `sync`, `normal`: every single operation, both formats": ufs_singles,
    "FAT, `softdep`, `sync`: every single operation": fat_singles,
    "FAT12, `softdep`, `sync`: pairs": fat_pairs,
    "FAT, `softdep`: random sequences": fat_random,
    "FAT, `async`, `normal`": fat_unordered,
    "ext2, `softdep`, `sync`, `normal`: every single operation": ext2_singles,
    "ext3, ext4, each of the three journal modes: random sequences": journals,
    "ext2, `softdep`, blocks taken ahead": ext2_ahead,
    "ext2, `softdep`, reserved inodes": ext2_reserved,
    "ext4, blocks as ext4 places them, with delayed allocation": ext4_goal,
}


# Campaigns of hours, and those that other programs judge.
OTHERS = "both formats$|^random sequences|^`async`|recovered|moves$|^ext2, the same"


@figure("crash", Table("crash.md", "## Results", others=OTHERS))
def crash(report, table):
    quick = [ext4_goal]
    for row, count in ROWS.items():
        if not report.quick or count in quick:
            command, cell = table.rows[row]
            report.row(table, row, [command, filled(cell, count(report))])
