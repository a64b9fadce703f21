################################################################################
#
# An ext4 root filesystem image laid out by seekless
#
# Buildroot runs the command under fakeroot, which shows it the owners and the
# devices of its tables. For a reproducible image (BR2_REPRODUCIBLE) it exports
# SOURCE_DATE_EPOCH, which seekless takes for the times.
#
################################################################################

ROOTFS_SEEKLESS_IMAGE_NAME = rootfs.seekless.ext4

ROOTFS_SEEKLESS_SIZE = $(call qstrip,$(BR2_TARGET_ROOTFS_SEEKLESS_SIZE))

ROOTFS_SEEKLESS_OPTS = \
	--label "$(call qstrip,$(BR2_TARGET_ROOTFS_SEEKLESS_LABEL))" \
	$(if $(ROOTFS_SEEKLESS_SIZE),--size $(ROOTFS_SEEKLESS_SIZE)) \
	$(foreach t,$(call qstrip,$(BR2_TARGET_ROOTFS_SEEKLESS_TRACES)),--trace $(t)) \
	$(call qstrip,$(BR2_TARGET_ROOTFS_SEEKLESS_OPTIONS))

define ROOTFS_SEEKLESS_CMD
	$(call qstrip,$(BR2_TARGET_ROOTFS_SEEKLESS_PROGRAM)) --quiet build $(TARGET_DIR) -o $@ --force $(ROOTFS_SEEKLESS_OPTS)
endef

$(eval $(rootfs))
