include $(BR2_EXTERNAL_SEEKLESS_PATH)/fs/seekless/seekless.mk
