# fuzz.sh SECONDS [TARGET]: builds the targets of lab/fuzz against libFuzzer, below $PLACE, and feeds one
# target, or all one after the other, with inputs that it makes up.
seconds=$1 only=${2-}
targets=$(cd lab/fuzz/fuzz_targets && for file in *.rs; do echo "${file%.rs}"; done)
if [ -n "$only" ] && ! echo "$targets" | grep -qx -- "$only"; then
    echo "no fuzz target \`$only\`; there are: $(echo $targets)" >&2
    exit 1
fi
# These need the whole program, which compiles for minutes with these flags.
case $only in
'' | commands | plans | results) whole=--features=program ;;
*) whole= ;;
esac
# What cargo-fuzz passes too: counters for edges, and compared values, from which libFuzzer learns the
# constants of a protocol. In one piece the counters of a crate stay together.
flags=-Cpasses=sancov-module
for pass in level=4 inline-8bit-counters pc-table trace-compares; do
    flags=$flags$(printf '\037')-Cllvm-args=-sanitizer-coverage-$pass
done
# The flags must not reach build scripts, which have no libFuzzer in them: cargo keeps the two apart when a
# target is named.
host=$("${RUSTC:-rustc}" -vV | sed -n 's/^host: //p')
CARGO_TARGET_DIR=$PLACE CARGO_ENCODED_RUSTFLAGS=$flags$(printf '\037')-Ccodegen-units=1 \
    "${CARGO:-cargo}" build --quiet --profile=fuzz --target "$host" --manifest-path lab/fuzz/Cargo.toml \
    --bins --no-default-features --features=libfuzzer $whole
for name in ${only:-$targets}; do
    echo "== $name: $seconds s"
    fuzzer=$PLACE/$host/fuzz/$name artifacts=lab/fuzz/artifacts/$name corpus=lab/fuzz/corpus/$name
    mkdir -p "$artifacts"
    begun=$(mktemp)
    # Its report ends in a dictionary of no use here: shown only on a fault. An input that takes longer than
    # 10 s counts as a hang.
    code=0
    "$fuzzer" "-max_total_time=$seconds" "-artifact_prefix=$artifacts/" -timeout=10 -use_value_profile=1 \
        -print_final_stats=1 -verbosity=0 "$corpus" 2>"$PLACE/report" || code=$?
    found=$(find "$artifacts" -type f -newer "$begun")
    rm "$begun"
    if [ "$code" != 0 ] || [ -n "$found" ]; then
        cat "$PLACE/report" >&2
        for file in $found; do echo "the input lies in $file; again: $fuzzer $file" >&2; done
        echo "fuzzing \`$name\` found a fault ($code); mend it, and keep the input as $corpus/seed-WHAT" >&2
        exit 1
    fi
    tried=$(sed -n 's/^stat::number_of_executed_units: *//p' "$PLACE/report")
    [ -n "$tried" ] || { echo "libFuzzer reports no number of inputs" >&2; exit 1; }
    echo "   nothing found in $tried inputs; $(ls "$corpus" | wc -l) worth keeping in $corpus"
done
