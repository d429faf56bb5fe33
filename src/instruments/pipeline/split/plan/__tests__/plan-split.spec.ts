/** @jest-environment ./jest.environment.node.js */
import type { SplitRequest } from '../../protocol/split.generated';
import { PlanError } from '../../../plan/plan-shape';
import { SPLIT_FAMILIES, fullSplitRequest } from '../split-request';
import { planSplit } from '../plan-split';
import { splitAnswer } from '../../../engine/pipeline-job';
import { expectGolden } from '../../../plan/__tests__/golden-answers';

const GOLDEN = 'protocol/fixtures/split-planned.json';

const base: SplitRequest = {
  devices: [
    { name: 'fast', count: 2, forward: 4, backward: 9, optimizer: 1, memory_bytes: 1000 },
    { name: 'slow', count: 2, forward: 10, recompute: 11, backward: 40, memory_bytes: 400 }
  ],
  layers: 4,
  micro_batches: 4,
  latency: 0.1,
  bandwidth: 100,
  message_bytes: 10,
  activation_bytes: 120,
  weight_bytes: 60,
  state_bytes: 240
};

const REQUESTS: Record<string, SplitRequest> = {
  'every family': base,
  'a layout of one s own': {
    ...base,
    layout: {
      family: 'split',
      data: 2,
      tensor: 1,
      stages: [{ device: 0, layers: 4, forward_device: 1 }]
    }
  },
  'little memory': {
    ...base,
    devices: base.devices.map(kind => ({ ...kind, memory_bytes: 150 })),
    seed: 5,
    uncertainty: 0.2
  }
};

describe('what the engine answers', () => {
  it('is what the golden answers say, to the last digit', () =>
    expectGolden(GOLDEN, REQUESTS, async request => splitAnswer(await planSplit(request))));
});

describe('a plan', () => {
  it('has the best of each family, and says by how much a split is better, with what chance makes of it', async () => {
    const { layouts, best, verdict } = await planSplit(base);
    expect(layouts.map(each => ('refused' in each ? each.family : each.layout.family))).toEqual(
      SPLIT_FAMILIES
    );
    expect(best?.overMemoryBytes).toBe(0);
    expect(verdict.percent).toBeCloseTo((verdict.split!.stepMs / verdict.other!.stepMs - 1) * 100);
    expect(verdict.lowPercent).toBeLessThan(verdict.percent);
    expect(verdict.highPercent).toBeGreaterThan(verdict.percent);
    expect(verdict.isWorthIt).toBe(verdict.highPercent < 0);
  });

  it('has no interval without uncertainty', async () => {
    const { percent, lowPercent, highPercent, regretPercent } = (await planSplit({ ...base, uncertainty: 0 }))
      .verdict;
    expect([lowPercent, highPercent, regretPercent]).toEqual(
      [percent, percent, 0].map(each => expect.closeTo(each))
    );
  });

  it('says why there is none where devices or memory do not suffice for a split, or for anything', async () => {
    const one = { name: 'one', count: 1, forward: 1 };
    const alone = await planSplit({ ...base, devices: [one], micro_batches: 2 });
    expect(alone.verdict).toMatchObject({ isWorthIt: false, split: null, percent: NaN });
    expect(alone.layouts[4]).toMatchObject({ family: 'split', refused: { code: 'fit' } });
    const none = await planSplit({ ...base, devices: [{ ...one, memory_bytes: 1 }] });
    expect(none.best).toBeNull();
    expect(none.layouts[0]).toMatchObject({ refused: { code: 'memory' } });
  });

  it('can be given up', async () => {
    const signal = AbortSignal.abort(new Error('enough'));
    await expect(planSplit(base, { signal })).rejects.toThrow('enough');
  });

  it.each([
    ['devices', { devices: [] }, 'devices must have'],
    ['micro_batches', { micro_batches: 0 }, 'must be 1 to 4096, got 0'],
    [
      'layout.stages',
      {
        family: 'ordinary',
        stages: [
          [0, 2],
          [0, 2]
        ]
      },
      'must be 1 for ordinary, got 2'
    ],
    ['layout.data', { data: 3 }, 'must divide micro_batches, 4, got 3'],
    ['layout.stages.0.device', { stages: [[2, 4, 0]] }, 'must be a kind of device, 0 to 1, got 2'],
    ['layout.stages.0.forward_device', { stages: [[0, 4]] }, 'must be a kind of device'],
    [
      'layout.stages.0.forward_device',
      { family: 'ordinary', stages: [[0, 4, 1]] },
      'must be left out for ordinary'
    ],
    ['layout.forward_tensor', { tensor: 2, forward_tensor: 3 }, 'must divide tensor, 2, got 3'],
    ['layout.stages', { stages: [[0, 5, 1]] }, 'as many layers as the model, 4, got 5'],
    ['layout.stages', { data: 4 }, 'no more devices than there are, 2 of fast, 2 of slow']
  ])('refuses %s by name: %j', (field, change, words) => {
    const { stages = [[0, 4, 1]], ...more } = change as { stages?: number[][] };
    const layout = {
      family: 'split',
      data: 1,
      tensor: 1,
      ...more,
      stages: stages.map(([device, layers, forward]) => ({
        device,
        layers,
        ...(forward === undefined ? {} : { forward_device: forward })
      }))
    };
    try {
      fullSplitRequest({ ...base, ...(field.startsWith('layout') ? { layout } : change) });
    } catch (reason) {
      expect(reason).toBeInstanceOf(PlanError);
      expect(reason).toMatchObject({ field });
      expect((reason as PlanError).message).toContain(words);
      return;
    }
    throw new Error('It was not refused.');
  });
});
