#!/bin/sh
# screens.sh JOSTLE: makes the pictures of tool/docs/screens/ again from results of lab/record: the page on a
# screen and on a phone, light and dark. They are shots of Chromium, which cwebp makes small.
set -eu
jostle=$1 work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for shown in contend:lockscale connect:connect-20k; do
    "$jostle" report "lab/record/${shown#*:}.jsonl" --html "$work/page.html" >/dev/null
    # A view: its name, its width and height in pixels, and the width of the picture.
    for view in "screen 1300 1240 910" "phone 400 1800 300"; do
        set -- $view
        # In a frame, since a window of Chromium's is never as narrow as a phone.
        echo "<!DOCTYPE html><meta charset=\"utf-8\"><body style=\"margin:0\"><iframe src=\"file://$work/page.html\"
            style=\"border:0;width:$2px;height:$3px\"></iframe>" >"$work/frame.html"
        for shade in light:1 dark:0; do
            # What Chromium complains of on a machine without a desktop is of no interest while it succeeds.
            HOME=$work timeout --kill-after=5 90 chromium --headless --no-sandbox --disable-gpu \
                --hide-scrollbars --allow-file-access-from-files --virtual-time-budget=8000 \
                "--blink-settings=preferredColorScheme=${shade#*:}" \
                "--window-size=$(($2 > 500 ? $2 : 500)),$3" "--screenshot=$work/shot.png" \
                "file://$work/frame.html" >"$work/said" 2>&1 || { cat "$work/said" >&2; exit 1; }
            picture=tool/docs/screens/${shown%%:*}-$1-${shade%%:*}.webp
            cwebp -quiet -size 45000 -pass 6 -crop 0 0 "$2" "$3" -resize "$4" 0 -o "$picture" "$work/shot.png"
            echo "$picture"
        done
    done
done
