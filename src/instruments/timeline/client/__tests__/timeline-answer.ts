/** Two ranks and a step of 10 ms: rank 1 computes longer, rank 0 waits for it in a collective; a sum of three short spans. */
export const timelineAnswer = (more: object = {}): object => ({
  steps_there: [1, 40],
  chosen: [3, 4],
  ranks_there: 80,
  ranks_chosen: 80,
  verdict: {
    culprits: [
      {
        kind: 'device',
        ranks: [1],
        first: 3,
        last: 30,
        sentence: 'Steps 3 to 30: rank 1 computes 50 % slower.'
      }
    ],
    hidden: [
      { kind: 'host', ranks: [0], first: 3, last: 9, sentence: 'Nobody waits for it: rank 0 pauses.' }
    ],
    stalls: [{ kind: 'stall', ranks: [0], first: 5, last: 5, sentence: 'Step 5: rank 0 stalls for 2 ms.' }],
    step_ns: 10e6,
    price_ns: 4e6,
    problems: ['Rank 7 is missing.']
  },
  slow: { ranks: [0, 1], steps: [3], values: [[0], [0.5]] },
  lanes: [
    { rank: 0, stage: -1, half_width: 0, reference: 0 },
    { rank: 1, stage: -1, half_width: 0.0025, reference: 0 }
  ],
  window: [0, 20],
  whole: [0, 20],
  steps: [
    [3, 0, 10],
    [4, 10, 20]
  ],
  kinds: ['step', 'forward', 'backward', 'wgrad', 'optimizer', 'data', 'checkpoint', 'user', 'collective'],
  pieces: {
    lane: [0, 1, 1, 0],
    depth: [0, 0, 0, 2],
    kind: [1, 1, 4, 8],
    begin: [0, 0, 9, 4],
    end: [4, 8, 9.5, 8],
    count: [1, 1, 3, 1],
    row: [10, 11, -1, 12],
    name: ['', '', '', 'all_reduce'],
    group: ['', '', '', '0-1'],
    step: [3, 3, -1, 3],
    micro_batch: [0, 0, -1, -1],
    chunk: [0, 0, -1, -1],
    bytes: [0, 0, -1, 4096],
    peer: [-1, -1, -1, -1]
  },
  links: [] as object[],
  path: [] as object[],
  found: { count: 0, since: 0, first: [] as object[] },
  sums: null,
  ...more
});
