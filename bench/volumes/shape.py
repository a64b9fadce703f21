"""Random options of mke2fs, and features that are added afterwards."""


def shape(rng):
    """Options of mke2fs, the size, and features to add when the kernel has filled the volume."""
    block = rng.choice([1024, 1024, 2048, 4096, 4096])
    inode = rng.choice([size for size in (128, 256, 256, 512, 1024) if size <= block])
    kind = rng.choices(["ext4", "ext3", "ext2"], [8, 1, 1])[0]
    size = rng.randrange(6 << 20, (24 << 20) if block == 1024 else (90 << 20)) // 1024
    options, features, extended, after = ["-t", kind, "-b", block, "-I", inode], [], [], []
    if kind == "ext4":
        for name, share in (("64bit", .5), ("metadata_csum", .5), ("flex_bg", .7), ("huge_file", .8), ("dir_nlink", .8),
                            ("extra_isize", .8), ("large_dir", .3), ("ea_inode", .4), ("uninit_bg", .4), ("sparse_super", .9),
                            ("large_file", .9), ("dir_index", .9), ("filetype", .95), ("has_journal", .85), ("resize_inode", .7),
                            ("encrypt", .15), ("stable_inodes", .1), ("extent", .93), ("ext_attr", .97)):
            features.append(name if rng.random() < share else "^" + name)
        on = set(features)
        if "metadata_csum" in on and "uninit_bg" in on:
            features[features.index("uninit_bg")] = "^uninit_bg"
        if "metadata_csum" in on and rng.random() < .4:
            features.append("metadata_csum_seed")
        if "^extent" in on:
            features[features.index("64bit") if "64bit" in features else features.index("^64bit")] = "^64bit"
        if "has_journal" in on and rng.random() < .4:
            features.append("orphan_file")
        if inode >= 256 and "ext_attr" in on and rng.random() < .3:
            features.append("inline_data")
        if "extent" in on and rng.random() < .2:
            features.append("bigalloc")
            options += ["-C", block * rng.choice([2, 4, 16])]
        if rng.random() < .2:
            features = [name for name in features if "resize_inode" not in name] + ["meta_bg", "^resize_inode"]
        if rng.random() < .15:
            features = [name for name in features if name not in ("sparse_super", "resize_inode", "^resize_inode")]
            features += ["sparse_super2", "^resize_inode"]
            if rng.random() < .7:
                extended.append(f"num_backup_sb={rng.randrange(3)}")
        if rng.random() < .15:
            after.append("quota")
        if inode >= 256 and rng.random() < .15:
            after.append("project")
        if rng.random() < .1:
            after.append("verity")
        if "^encrypt" in features and rng.random() < .1:
            after.append("casefold")
        if rng.random() < .3:
            options += ["-G", rng.choice([1, 2, 4, 32])]
        if rng.random() < .2 and "flex_bg" in features:
            extended.append("packed_meta_blocks=1")
        if "has_journal" in features and rng.random() < .2:
            features.append("fast_commit")
    elif rng.random() < .3:
        features += ["^resize_inode"]
    if rng.random() < .4:
        options += ["-g", rng.choice([it for it in (256, 1024, 2048, 4096, 8192) if it <= block * 8])]
    if rng.random() < .3:
        extended.append(f"stride={rng.choice([4, 16, 32])},stripe_width={rng.choice([16, 64, 128])}")
    if rng.random() < .2 and "resize_inode" in features:
        extended.append(f"resize={size * 1024 // block * rng.randrange(2, 60)}")
    if rng.random() < .3:
        extended.append("lazy_itable_init=1")
    if rng.random() < .3:
        options += ["-m", rng.choice([0, 1, 20])]
    if rng.random() < .3:
        options += ["-N", rng.randrange(400, 4000)]
    if rng.random() < .3:
        options += ["-e", rng.choice(["continue", "remount-ro"])]
    options += ["-J", "size=1"] if block == 1024 and kind != "ext2" and "^has_journal" not in features else []
    options += ["-E", ",".join(extended)] if extended else []
    options += ["-O", ",".join(features)] if features else []
    return [str(it) for it in options], size, after
