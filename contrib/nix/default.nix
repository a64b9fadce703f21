# An ext4 image of a tree, laid out by seekless. The same arguments give the same bytes.
#
#   import ./contrib/nix {
#     seekless = "${pkgs.seekless}/bin/seekless";   # or the path of a static program
#     source = config.system.build.toplevel;        # a directory, a tar archive or an image
#     traces = [ ./boot.trace ];
#   }
{
  # Path of the program.
  seekless,
  # What the image holds.
  source,
  name ? "image.ext4",
  # Traces of `seekless record`: their data is stored in the order of first access.
  traces ? [ ],
  # More options of `seekless build`.
  options ? [ ],
  # Label, UUID and times, which are part of the bytes.
  label ? "nixos",
  uuid ? "44444444-4444-4444-8888-888888888888",
  epoch ? 1,
  system ? builtins.currentSystem,
}:
let
  traceOptions = builtins.concatLists (map (trace: [ "--trace" "${trace}" ]) traces);
in
derivation {
  inherit name system;
  builder = seekless;
  SOURCE_DATE_EPOCH = toString epoch;
  args = [
    "--quiet" "build" "${source}" "-o" (builtins.placeholder "out")
    "--label" label "--uuid" uuid "--owner" "0:0"
  ] ++ traceOptions ++ options;
}
