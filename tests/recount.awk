# What a part of ResNet-50 keeps of one image for the backward half, and what it receives of other parts, from
# shapes and kernels alone. -v size= rows= columns= (of parts) part=
function round64(x) { return int((x + 63) / 64) * 64 }
function start(n, parts, i) { return int(n * i / parts) }
function area(n, a) { # of a map of n x n pixels: sides of the part
    for (a = 0; a < 2; a++) {
        at[a] = start(n, parts[a], place[a])
        end[a] = start(n, parts[a], place[a] + 1)
    }
    return (end[0] - at[0]) * (end[1] - at[1])
}
function keep(channels, n, width) { kept += round64(channels * area(n) * width) }
# a window of k pixels and stride s over a map of n pixels: pixels of it beyond the part's own
function halo(channels, n, k, s, pad, a, o, first, last, all, own) {
    o = int((n + 2 * pad - k) / s) + 1
    area(n)
    all = own = 1
    for (a = 0; a < 2; a++) {
        first = start(o, parts[a], place[a]) * s - pad
        last = (start(o, parts[a], place[a] + 1) - 1) * s - pad + k
        if (first < 0 || parts[a] == 1) first = 0
        if (last > n || parts[a] == 1) last = n
        all *= last - first
        own *= (last < end[a] ? last : end[a]) - (first > at[a] ? first : at[a])
    }
    received += (all - own) * channels * 4
    return o
}
BEGIN {
    parts[0] = rows; parts[1] = columns
    place[0] = int(part / columns); place[1] = part % columns
    received = area(size) * 3 # its pixels of the image, a byte each
    keep(3, size, 4)
    n = halo(3, size, 7, 2, 3)
    keep(64, n, 4)
    n = halo(64, n, 3, 2, 1)
    keep(64, n, 4)
    keep(64, n, 1) # which pixel was the largest
    split("3 4 6 3", blocks)
    for (layer = 1; layer <= 4; layer++)
        for (block = 0; block < blocks[layer]; block++) {
            width = 32 * 2 ^ layer
            keep(width, n, 4); keep(width, n, 4)
            if (block == 0 && layer > 1) halo(2 * width, n, 1, 2, 0) # what is added has fewer pixels, too
            n = halo(width, n, 3, layer > 1 && block == 0 ? 2 : 1, 1)
            keep(width, n, 4); keep(width, n, 4)
            keep(4 * width, n, 4); keep(4 * width, n, 4)
            if (block == 0) keep(4 * width, n, 4)
        }
    keep(4 * width, n, 4) # the gradient with which the backward half begins
    print kept, received
}
