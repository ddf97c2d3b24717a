/* What messages over a fabric cost, against closed forms done by hand. */
#include "plan/fabric.h"

#include <math.h>

#include "tap.h"

static const kolo_fabric dgx = {.nodes = 100,
                                .gpus = 8,
                                .link = 300,
                                .link_latency = 3,
                                .network = 200,
                                .network_latency = 14,
                                .start = 8,
                                .share = 1};

static void near_seconds(double got, double want, const char *text)
{
    ok(fabs(got - want) <= 1e-9 * want, "%s: %g s, by hand %g s", text, got, want);
}

static void near(kolo_fabric_load load, double want, const char *text)
{
    near_seconds(load.latency + load.seconds * fmax(load.network, 1), want, text);
}

int main(void)
{
    const kolo_fabric_group one = {1, 1, 1}, node = {8, 1, 1}, all = {64, 8, 1}, rail = {8, 8, 8};
    const double big = 1e9;
    near(kolo_fabric_sum(&dgx, &one, big, true), 0, "a group of one sends nothing");
    near(kolo_fabric_sum(&dgx, &node, big, true), 8e-6 + 14 * 3e-6 + big / 300e9,
         "a ring within a node: 14 hops, then its bytes over NVLink");
    near(kolo_fabric_sum(&dgx, &node, big, false), 8e-6 + 7 * 3e-6 + big / 300e9,
         "half of a sum: half of the hops");
    near(kolo_fabric_sum(&dgx, &all, 0, true), 8e-6 + 2 * (3 * 14e-6 + 7 * 3e-6),
         "nothing over 8 nodes: up and down a tree of 3 levels, chains of 7 in the nodes");
    near(kolo_fabric_sum(&dgx, &all, big, true), 8e-6 + 126e-6 + big * 64 / 63 / 200e9,
         "a GB over 8 nodes: still a tree, which passes every byte");
    near(kolo_fabric_sum(&dgx, &all, 10 * big, true), 8e-6 + 2 * (7 * 14e-6 + 56 * 3e-6) + 10 * big / 200e9,
         "ten GB over 8 nodes: a ring, as fast as all ports of a node");
    near(kolo_fabric_sum(&dgx, &rail, big, false), 8e-6 + 7 * 14e-6 + big / 25e9,
         "eight groups at once share the ports");
    near(kolo_fabric_send(&dgx, false, 1, big), 14e-6 + big / 25e9,
         "a message to another node has a GPU's part of them");
    near(kolo_fabric_send(&dgx, true, 1, big), 3e-6 + big / 300e9, "one within the node its own link");
    const kolo_fabric_load port = kolo_fabric_send(&dgx, false, 4, big);
    near_seconds(port.network, 0.5, "four of eight GPUs that send use half of the node's network");
    const kolo_fabric_host two = {.cores = 2, .threads = 1, .copy = 1e-10, .add = 2e-10, .latency = 1e-5};
    const kolo_fabric cores = kolo_fabric_node(&two);
    const kolo_fabric_group four = {4, 1, 1};
    const kolo_fabric_load sum = kolo_fabric_sum(&cores, &four, 1.5e8, true);
    near(sum, 1e-5 + 0.75e8 * 3e-10, "100 MB in the memory of a node: 3/4 are added and copied by each of 4");
    near_seconds(sum.cores, 4, "which takes a core of each");
    const kolo_fabric_host crowd = {
        .cores = 4, .threads = 1, .copy = 1e-10, .add = 2e-10, .latency = 1e-5, .crowd = 1.6};
    const kolo_fabric wide = kolo_fabric_node(&crowd);
    const kolo_fabric_group pair = {2, 1, 1};
    near(kolo_fabric_sum(&wide, &four, 1.5e8, true), 1e-5 + 1.6 * 0.75e8 * 3e-10,
         "four at once on four cores take as long as memory does that all use");
    near(kolo_fabric_sum(&wide, &pair, 1e8, true), 1e-5 + 1.2 * 0.5e8 * 3e-10,
         "two of them a third of what that is more");
    return done_testing();
}
