# The image type "seekless-ext4": an ext4 file system whose data lies in the order in which a
# recorded boot reads it.
#
#   IMAGE_CLASSES += "image_types_seekless"
#   IMAGE_FSTYPES += "seekless-ext4"

# Traces that seekless recorded, separated by spaces.
SEEKLESS_TRACES ?= ""

# More options of `seekless build`.
EXTRA_IMAGECMD:seekless-ext4 ?= ""

# The tree is read under pseudo, which shows the owners and devices of the image. Times are taken
# from SOURCE_DATE_EPOCH, which bitbake exports.
oe_seekless_ext4() {
    traces=""
    for trace in ${SEEKLESS_TRACES}; do
        traces="$traces --trace $trace"
    done
    seekless --quiet build ${IMAGE_ROOTFS} -o ${IMGDEPLOYDIR}/${IMAGE_NAME}.seekless-ext4 --force \
        --size ${ROOTFS_SIZE}K $traces "$@"
}

IMAGE_CMD:seekless-ext4 = "oe_seekless_ext4 ${EXTRA_IMAGECMD}"
IMAGE_TYPES += "seekless-ext4"
HOSTTOOLS += "seekless"
