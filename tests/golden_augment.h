/* Made by tests/peers/augment_figures.py: Pillow 13.0.0, torch 2.15.0, torchvision 0.29.2, timm 1.0.31. */
#ifndef TESTS_GOLDEN_AUGMENT_H
#define TESTS_GOLDEN_AUGMENT_H

#include <stdint.h>

#include "base/option.h"

/* kind, height, width, channels */
static const int golden_shapes[][4] = {
    {0, 37, 45, 3}, {1, 41, 30, 3}, {0, 70, 131, 3}, {1, 23, 70, 1}, {0, 3, 2, 3}};
static const int golden_near_shape[4] = {0, 7, 13, 3};

/* operation of adjust.h, what it is given, and the crc32 of its results for the images of golden_shapes */
static const struct golden_single {
    const char *name;
    double p[6];
    uint32_t crc;
} golden_singles[] = {
    {"invert", {0}, 0x9FF88ED0},
    {"posterize", {1}, 0xA1C995CC},
    {"posterize", {3}, 0x8C773D1E},
    {"posterize", {4}, 0x40147D60},
    {"posterize", {7}, 0x4A7D3A33},
    {"posterize", {8}, 0xACF7D941},
    {"solarize", {0}, 0x9FF88ED0},
    {"solarize", {100}, 0xFDC4688E},
    {"solarize", {127.5}, 0xC08DEF77},
    {"solarize", {128}, 0xC08DEF77},
    {"solarize", {255}, 0xF9808022},
    {"solarize", {256}, 0xACF7D941},
    {"solarize_add", {0, 128}, 0xACF7D941},
    {"solarize_add", {55, 128}, 0xC06E8BB5},
    {"solarize_add", {110, 128}, 0x2CA1C62C},
    {"solarize_add", {200, 90}, 0x8C5C5B38},
    {"autocontrast", {0}, 0xB3F27314},
    {"equalize", {0}, 0x710B7384},
    {"brightness", {0}, 0x381BE431},
    {"brightness", {0.1}, 0x12D3E62D},
    {"brightness", {0.73}, 0x0CBAEEEE},
    {"brightness", {1}, 0xACF7D941},
    {"brightness", {1.27}, 0x3EAAB040},
    {"brightness", {1.9}, 0x2C647234},
    {"contrast", {0}, 0xA5EA98AA},
    {"contrast", {0.1}, 0x2F006794},
    {"contrast", {0.73}, 0x59388E54},
    {"contrast", {1}, 0xACF7D941},
    {"contrast", {1.27}, 0xC3D7B5AC},
    {"contrast", {1.9}, 0xD3B2E524},
    {"color", {0}, 0x9602051A},
    {"color", {0.1}, 0xDD801728},
    {"color", {0.73}, 0x2F0538CF},
    {"color", {1}, 0xACF7D941},
    {"color", {1.27}, 0x1C712BB0},
    {"color", {1.9}, 0x95C38F6C},
    {"sharpness", {0}, 0xC2641E9F},
    {"sharpness", {0.1}, 0x3A558FD1},
    {"sharpness", {0.73}, 0xE1CF2C2B},
    {"sharpness", {1}, 0xACF7D941},
    {"sharpness", {1.27}, 0xE180A68E},
    {"sharpness", {1.9}, 0x1C80B787},
    {"grayscale", {0}, 0x9602051A},
    {"rotate", {0, 0}, 0xACF7D941},
    {"rotate", {13.7, 0}, 0xC8289AC8},
    {"rotate", {-30, 0}, 0x2D766B3B},
    {"rotate", {90, 0}, 0xF8890D40},
    {"rotate", {135, 0}, 0x21E7ED1B},
    {"rotate", {180, 0}, 0x576E1240},
    {"rotate", {-135, 0}, 0xD1774A40},
    {"rotate", {0, 1}, 0xACF7D941},
    {"rotate", {13.7, 1}, 0x90D4647F},
    {"rotate", {-30, 1}, 0x73E3A62E},
    {"rotate", {90, 1}, 0x37A75FA0},
    {"rotate", {135, 1}, 0x89966397},
    {"rotate", {180, 1}, 0x576E1240},
    {"rotate", {-135, 1}, 0xD2CCEC9D},
    {"affine", {0, 3, 0, 1, 0, 0}, 0xD28134DF},
    {"affine", {0, 0, -5, 1, 0, 0}, 0x1CDA5FCC},
    {"affine", {17, 2, -3, 1.2, 5, -4}, 0x8285A4C5},
    {"affine", {-100, 0, 0, 0.5, 0, 20}, 0xB398CF57},
};

/* the same where rounding is the machine's: every byte, of image {0, 7, 13, 3} */
static const struct golden_near {
    const char *name;
    double p[6];
    const char *bytes;
} golden_nears[] = {
    {"jitter_contrast",
     {0.6},
     "bb7537c844654eaa59c570a88489a0837ea853b5b799c266b88c725a95c2c4543b36b1725a577563833f383eaec159727b48bcb"
     "9"
     "4735ac9050b0c6a6c26659bb4d5d5b875192c2b76bc4c3b94ca9b5738d5d585d677daa8b448047b68a7b363e6fc2b753818743a"
     "5"
     "9867c554465373416cc6aac9b07f8f80549e935a94ab763e8fbf62bf6283848055a6aa547e7739bcc8a25539435c4884688a9aa"
     "2"
     "cb9b75b060a8b39e66ba98519cbd3b8749ab484ac8ad803d4e8ea442adba5a8f635248514aad42699f59b75867aba235a6b4b68"
     "a"
     "5c515dc1b6bc7e92c39c66748b499b657099a96b6c7236bd6b8caf53a773bb7acb7d52b281517b9e7b36b2b792863469ad4b677"
     "2"
     "3f7b8f7a58943e507f82788c65"},
    {"jitter_contrast",
     {1.4},
     "ff6600ff004009df22ff59db8792c9847bdd14fafeb8ff41ff995f25aeffff190000f25f2720663a84000000e9ff225f7200fff"
     "f"
     "0000e5a50fedffd7ff4322ff062e289012a9fffe4cffffff05defa609e2e212c4478e198007f00fb9772000058ffff16808e00d"
     "6"
     "b744ff17001660004fffdfffed7ca27d19c3aa25ade46700a0ff39ff3784897d1ad7df197b6800ffffcf1a00002b00894797bbc"
     "d"
     "ffbc66ed33dbf4c341ffb710c1ff008e00e40000ffe87f000b9fd300e6ff27a03a13001201e6004ac624ff2144e4cf00d7f9fd9"
     "5"
     "2b122cfffbff7ba9ffc143639800bc3e59b8de4e515d00ff4e9bec14da60ff6fff7613f3821272c57400f3fea98b004ae804445"
     "f"
     "0074a06f21ad000f7c836b993e"},
    {"jitter_saturation",
     {0},
     "8484846363638787879a9a9a909090878787a7a7a7c7c7c7a4a4a48d8d8d6969698888884343436767672323237676765151515"
     "5"
     "55559c9c9ce2e2e27f7f7f6464646b6b6bd3d3d3c4c4c47171718f8f8f4040407878784a4a4a999999282828c2c2c26b6b6b8a8"
     "a"
     "8aaeaeae343434595959e5e5e58d8d8d8a8a8a8888883d3d3d8d8d8d7373735c5c5c696969414141bdbdbd191919636363a4a4a"
     "4"
     "bcbcbc7f7f7fb0b0b0abababbcbcbc5555553c3c3c8989897b7b7b9797977575752929298484848b8b8b6f6f6fa8a8a8d0d0d05"
     "8"
     "5858b7b7b79f9f9fb7b7b77a7a7a6f6f6fb0b0b05a5a5a8c8c8c727272b1b1b19999999191919999999696967f7f7f969696595"
     "9"
     "598a8a8a727272676767818181"},
    {"jitter_saturation",
     {0.6},
     "bc7638bc375950ac5bcf7ab28a8ea68581ab62c4c6b5dd82c699805e99c7ba4b3139b475413e5c587834121888bc546e6734a8a"
     "7"
     "3523b79b5bd6eccdc16558af4152527e48b3e3d785dfddb345a2ba7893433e436379a6752d6a51bf9457131a89dcd14a787e46a"
     "9"
     "9c79d766273454315cb6d1f1d784948458a1965c97ae5b2373c467c35c7d7f714697a04b755d20a2e0ba6d0f19323c785c98a8b"
     "0"
     "e2b28daf5fa7c5b078cba961b4d55375379a2d2eacb083404c8ba24bb5c2558a5e2f252e4bae436da35db05160bbb244c5d4d67"
     "9"
     "4c4172d6cbc78a9ed8b27c718846935d69abbc7e5d6227c26f90a94ca186ce8dd5865bb8885884a8853fbabf91853372b554576"
     "2"
     "2f7f927d528e38467477788b64"},
    {"jitter_saturation",
     {1.4},
     "ff6500ff004c07dd20ff4fd2818dc38279db05ebef9cfc25f38c5121aaffff230000ef5c40397f458f00000bffff2763860ffff"
     "f"
     "0a00db9a04c7fbb1ff4423ff123a31991b88f8de32ffffff0ce5f55b98483b47487ce5ae089500f28d9600093effe61f899700d"
     "2"
     "b432ff0516357f005fffb8ffc6779d7915c0a723abe18300bcff34ff3d8a8f8d29e6e923858200ffffb702021a5507955389adc"
     "0"
     "ffa54eee34dce2b12ff6a600a9f600a010f6191bffe57c000da2d500defd2ca63f37203500e50046c220ff294cd4bf00b8d9dda"
     "6"
     "3b2217ffe6fe6f9dffab2d669b01c44660a6cc3b616d00ff4a97f21be04df55dff6d0aed7c0b69bc6a00ebf6aa8d0042e000546"
     "f"
     "00709d6c27b30019878e6b9a3f"},
    {"jitter_hue",
     {-0.5},
     "067ae21bf8c0c52cb365f396b5ad86bcc37ddb37349854ed69b3ddee8c400cc6f1d2056e696e3c481384ccc1073eecc18ee3220"
     "3"
     "c2df305ec9e4bff43ed6ed2ae2c67c328cee9eb1f15c5e29df446ad8ac3d463ec6a1561b922dd9216905776aee64768b3f35be1"
     "a"
     "30d336f36a541ff5ae17fac5f0997e98b13749c867403b98124ee94f87504d78bf3837c57f7ee40a3877f8443309872251b89e9"
     "1"
     "6ebefc4acf575477d4316ae1440de661c824f8f623105bcbbc522de02f1998418a233324bd19ca983fb33ddcc30211c8dac2bf3"
     "2"
     "7e90ec45587de3c25595ef4a249252ac99785dc40e05685de6af34ce41e26ad733b6fd3283d3b277b1db0d0501169e9928cb261"
     "3"
     "699575987612a1833530735293"},
    {"jitter_hue",
     {-0.1},
     "e20622f81bd876c52ccf65f386aab57da0c334db7aedd654dd698540eed2f10c6a1cd2053c556e8475130788ccec3ed22241e3d"
     "f"
     "036ac93f30eff4bfed3e90e22ab5788c329eeeab5cf1968d29dfd86ad8413d4656bec65c1b9221d92277055664ee89358b611ab"
     "e"
     "45c8f3361f626a17e4f5dbfac58d997e37b15640c89e1e12988d4ee94d87673842bfb837c50a26e4f84638093d4428872291b8a"
     "e"
     "fc6e858c4acfd46454e13e31e69b0d2824c823a5f8cb10102dbc8b19e07f6798412a233390ca19a0b33fdc3db6c84202bfdacd9"
     "0"
     "325845ec75e37ddcef5557927624ac529bc4a15d683505e65de67f34cea7e26afd3365d332429ab27705db629e2a01bccb28694"
     "8"
     "138d987593a112308356938d52"},
    {"jitter_hue",
     {0.03},
     "e29606f81b2b2cc559f365a98686b5917dc334badb8eed54dda8694083eef1600c05d28e4a3c6e3a84131f07ccec3e499a22e3d"
     "f"
     "4703c9b730c6f4bfed743ee22f2a328c329eeeea5cd9f1df29a3d86a82463d435667c6921b6a21d9b2770c0564e8ee35718b1ab"
     "7"
     "be36f3381f276a1736f5c5fad97e998437adb14089c8871298e94ecc4d7a879738bfc53763970ae4f8dc38090f4422876a91a4b"
     "8"
     "fcc66ecf4aaad4c854e1c83188e60da924c84723f8cba2102d7dbc19a6e041985f33232f19ca2c45b33fdc403db4c802bfd2da9"
     "0"
     "553245e1ece37d8cefcb55589224ac525597c45d4d6805e65d7bce34a56ae28bfd9e33d39f3277b28305addb979e013ccb28466"
     "9"
     "1375987823a112306f83669352"},
    {"jitter_hue",
     {0.25},
     "0ce206c2f81b2c66c5f3dd65b586a6c37d998b34db54ede579dd69e340ee53f10c0507d26e3c50138481cc0774c0ec3ee3222d5"
     "4"
     "df0330c94ebfeaf47eed3ea2e22a326f8cb39eeea55cf1df9f29cdd86a46423dc656b392681b3521d94b77059764ee6a358b561"
     "a"
     "be36b5f36a1f5af517cdc5d6fa7e8b996237b1ab40c8982c12e99d4e6d4d87bf3b38c4c537e40a1138f859440937252287b291b"
     "8"
     "77fc6ecf9a4a54d47131e1500de6b1c83924f8239010cb229a2dbc9319e0415e98332c23197eca3f94b3a6dc3d02c856d0bfda4"
     "f"
     "90328645ecd1e37d55ef6224928192ac525dc4ac05683fd9e65dce8e346a9be251fd3332d3327794b27805db019e3a28accb136"
     "9"
     "51758a981285a15e3083529393"},
    {"blur",
     {0.3, 1},
     "e16e07f51c542fc33ff165c2878db4847ec236d8daa9eb54dc936941a1ebef390f07d16a423d6f5083150913cae93e6a7822e1d"
     "d"
     "2205c99a31cef3beec563fe12c46438c339decd95cf0eedd2bc4d66a95463e47577ac5911c8123d69077081464ecdb36818b1bb"
     "d"
     "a756f13720366b185ff4c4f8cf7e997f38b09f41a0c7701398e74fe64e83877f39bfc4377d700ce3f5b8390a1c4422865990abb"
     "7"
     "fbab6fcf4bc1d3b154e0a832afe40f8a26c72526f6ca80122e97bb1bc9de41974f33253227c81a5cb240db3f56c8b804bfd6d79"
     "0"
     "463346ead8e17d9eeeaf556c9225ab5365a8c35c5f6807e45e92cc36bf6ce075fc7b33d3833477b17807d3da9e89035bca28566"
     "a"
     "147897743ea113317e81729253"},
    {"blur",
     {0.9, 3},
     "884b55864a67915681a35791a766819f90849eb290b09f74a78669858e787b9f896ba09e6890a6755064754c74864f8b974f909"
     "c"
     "62759b88749ba78ba294799384697693716b9e8f689eb07295ba706679686285715b9782549486637d84757883889180808d738"
     "4"
     "7d64936c4e8781548ca96a97b98683887c818e7d7a928f6c8b906e897c67947a639f80659474778f658876477567437a76548c8"
     "2"
     "ac8580aa867ead9172af926c9d897880729c83649e8f707e768181648d7c53805d4e754d567c50ae816eb88664c59957b9a1629"
     "1"
     "9a76799596908b86998e5c7e8d58728d626a8c52667c476e764ca6836eb38b5ec7994fb89e6187a07b6fa7918d9f71959a487e8"
     "e"
     "43788a516e904b6a824c737954"},
    {"blur",
     {2, 6},
     "815b7c835c7e875f818c6583906f84917a839083818b8980828c7f788e826f908a699291679294825f7d845f7e8862818c68838"
     "f"
     "7084907a838e8282898780808a7f768d816d8f8767908e65919187687e88697f8b6a818e6e838f73848d79848a7f838484817c8"
     "7"
     "7e72897e688b80638c85618c8690747c91757c92757e9277808f79838c7c84877f8381817f78847a6e86776687766087775e877"
     "7"
     "9d7f779c80779b817898817b92827f8c818187828080837a7884746e856e66846a6184685f8368a68671a68771a389739e8a769"
     "6"
     "897b8e887e87867b81867579866d70856669846164825e62815daa896eaa8a6ea78c70a08d74978c798e8a7c88887a8187737a8"
     "7"
     "6a7186636a845d65825a638159"},
};

/* all bins in golden_bins, both signs, of one operation of torchvision's policies; crc32 over the results */
static const int golden_bins[] = {0, 1, 4, 9, 15, 16, 22, 30};
static const uint32_t golden_rand[] = {
    0x8BE00301, /* Identity */
    0x01C33E83, /* ShearX */
    0xD20CEA62, /* ShearY */
    0xBA29732B, /* TranslateX */
    0x8D3CC392, /* TranslateY */
    0xBCA066A4, /* Rotate */
    0x7EE0D45E, /* Brightness */
    0x6713C6FB, /* Color */
    0xF6BCE56C, /* Contrast */
    0x735C212A, /* Sharpness */
    0x95235A24, /* Posterize */
    0xA9D0082E, /* Solarize */
    0x912CA167, /* AutoContrast */
    0x7A808FB5, /* Equalize */
};
static const uint32_t golden_trivial[] = {
    0x8BE00301, /* Identity */
    0x9948402A, /* ShearX */
    0x6999EC6C, /* ShearY */
    0x029A0AC4, /* TranslateX */
    0x15AC8010, /* TranslateY */
    0x90C4FEB3, /* Rotate */
    0xD413918E, /* Brightness */
    0x81B16AB7, /* Color */
    0xE4FADDC7, /* Contrast */
    0x1C6EAB84, /* Sharpness */
    0xF8D73D5D, /* Posterize */
    0xA9D0082E, /* Solarize */
    0x912CA167, /* AutoContrast */
    0x7A808FB5, /* Equalize */
};

/* the same of timm's increasing operations, for magnitudes, signs and both interpolations; mean colour 128 */
static const double golden_levels[] = {0, 1.3, 5, 8.7, 9.9};
static const uint32_t golden_timm[] = {
    0xED809C84, /* AutoContrast */
    0x4D2CE305, /* Equalize */
    0x7D2B2B79, /* Invert */
    0x75EF013D, /* Rotate */
    0x88DB8EC9, /* PosterizeIncreasing */
    0xAC50F351, /* SolarizeIncreasing */
    0x690B85D4, /* SolarizeAdd */
    0x6B2E0F6F, /* ColorIncreasing */
    0xEF60B7E7, /* ContrastIncreasing */
    0xA35865F2, /* BrightnessIncreasing */
    0x1695CD62, /* SharpnessIncreasing */
    0x4B828F22, /* ShearX */
    0x7A578E0D, /* ShearY */
    0xDF32C085, /* TranslateXRel */
    0xCD9D8ECF, /* TranslateYRel */
};

/* Image.resize((width, height), filter, box = (left, top, right, bottom)) of image {0, 61, 83, channels} */
static const struct golden_resize {
    int filter, channels, height, width;
    double box[4];
    uint32_t crc;
} golden_resizes[] = {
    {KOLO_interpolation_bilinear, 3, 24, 32, {0, 0, 83, 61}, 0x34E1C4A0},
    {KOLO_interpolation_bilinear, 3, 90, 120, {0, 0, 83, 61}, 0x2E57FD46},
    {KOLO_interpolation_bilinear, 3, 40, 17, {5, 3, 77, 50}, 0x31F0F9F3},
    {KOLO_interpolation_bilinear, 3, 20, 83, {0, 0, 83, 61}, 0x2DEB2DEC},
    {KOLO_interpolation_bilinear, 3, 61, 9, {0, 0, 83, 61}, 0xEA3765C5},
    {KOLO_interpolation_bilinear, 3, 1, 1, {10, 10, 11, 60}, 0xBE8AB3ED},
    {KOLO_interpolation_bilinear, 1, 24, 32, {0, 0, 83, 61}, 0xB10D84BF},
    {KOLO_interpolation_bilinear, 1, 90, 120, {0, 0, 83, 61}, 0x6F1D29C7},
    {KOLO_interpolation_bilinear, 1, 40, 17, {5, 3, 77, 50}, 0x24765CE8},
    {KOLO_interpolation_bilinear, 1, 20, 83, {0, 0, 83, 61}, 0x102B3CF7},
    {KOLO_interpolation_bilinear, 1, 61, 9, {0, 0, 83, 61}, 0x11F514DA},
    {KOLO_interpolation_bilinear, 1, 1, 1, {10, 10, 11, 60}, 0x550A4C5F},
    {KOLO_interpolation_bicubic, 3, 24, 32, {0, 0, 83, 61}, 0x44E55F55},
    {KOLO_interpolation_bicubic, 3, 90, 120, {0, 0, 83, 61}, 0x8071B4C3},
    {KOLO_interpolation_bicubic, 3, 40, 17, {5, 3, 77, 50}, 0x7E099864},
    {KOLO_interpolation_bicubic, 3, 20, 83, {0, 0, 83, 61}, 0xEA75DB1A},
    {KOLO_interpolation_bicubic, 3, 61, 9, {0, 0, 83, 61}, 0x6D0F0DFA},
    {KOLO_interpolation_bicubic, 3, 1, 1, {10, 10, 11, 60}, 0x0CAEB194},
    {KOLO_interpolation_bicubic, 1, 24, 32, {0, 0, 83, 61}, 0x46CECD55},
    {KOLO_interpolation_bicubic, 1, 90, 120, {0, 0, 83, 61}, 0xB07F0CD5},
    {KOLO_interpolation_bicubic, 1, 40, 17, {5, 3, 77, 50}, 0xB07894EF},
    {KOLO_interpolation_bicubic, 1, 20, 83, {0, 0, 83, 61}, 0x282851B5},
    {KOLO_interpolation_bicubic, 1, 61, 9, {0, 0, 83, 61}, 0x3DFAB22D},
    {KOLO_interpolation_bicubic, 1, 1, 1, {10, 10, 11, 60}, 0x220D7CC9},
    {KOLO_interpolation_lanczos, 3, 24, 32, {0, 0, 83, 61}, 0x17B166F2},
    {KOLO_interpolation_lanczos, 3, 90, 120, {0, 0, 83, 61}, 0x8E25AF6C},
    {KOLO_interpolation_lanczos, 3, 40, 17, {5, 3, 77, 50}, 0x488C2EB6},
    {KOLO_interpolation_lanczos, 3, 20, 83, {0, 0, 83, 61}, 0x7FAB1D7B},
    {KOLO_interpolation_lanczos, 3, 61, 9, {0, 0, 83, 61}, 0x7FDEF069},
    {KOLO_interpolation_lanczos, 3, 1, 1, {10, 10, 11, 60}, 0x2783E257},
    {KOLO_interpolation_lanczos, 1, 24, 32, {0, 0, 83, 61}, 0x41BA22CE},
    {KOLO_interpolation_lanczos, 1, 90, 120, {0, 0, 83, 61}, 0x93C2BDDA},
    {KOLO_interpolation_lanczos, 1, 40, 17, {5, 3, 77, 50}, 0x8A9276E7},
    {KOLO_interpolation_lanczos, 1, 20, 83, {0, 0, 83, 61}, 0x6A618285},
    {KOLO_interpolation_lanczos, 1, 61, 9, {0, 0, 83, 61}, 0x633ED047},
    {KOLO_interpolation_lanczos, 1, 1, 1, {10, 10, 11, 60}, 0x220D7CC9},
    {KOLO_interpolation_box, 3, 24, 32, {0, 0, 83, 61}, 0x633F8C40},
    {KOLO_interpolation_box, 3, 90, 120, {0, 0, 83, 61}, 0x3BF8DC5C},
    {KOLO_interpolation_box, 3, 40, 17, {5, 3, 77, 50}, 0x877CCEEF},
    {KOLO_interpolation_box, 3, 20, 83, {0, 0, 83, 61}, 0x7A8CA4C8},
    {KOLO_interpolation_box, 3, 61, 9, {0, 0, 83, 61}, 0xC8D4C561},
    {KOLO_interpolation_box, 3, 1, 1, {10, 10, 11, 60}, 0xCEE04762},
    {KOLO_interpolation_box, 1, 24, 32, {0, 0, 83, 61}, 0xAE9FCC03},
    {KOLO_interpolation_box, 1, 90, 120, {0, 0, 83, 61}, 0xD20E525A},
    {KOLO_interpolation_box, 1, 40, 17, {5, 3, 77, 50}, 0x9E7CB3FB},
    {KOLO_interpolation_box, 1, 20, 83, {0, 0, 83, 61}, 0x0BA89A2D},
    {KOLO_interpolation_box, 1, 61, 9, {0, 0, 83, 61}, 0xC7C4CA1B},
    {KOLO_interpolation_box, 1, 1, 1, {10, 10, 11, 60}, 0x220D7CC9},
};

#endif
