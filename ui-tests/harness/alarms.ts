import type { IAlarm } from '../../src/instruments/monitor/store/alarms';

/** A NaN in the activations of layer 2 that goes through the whole model, after jumps of its gradients: 1,400 alarms. */
export function syntheticAlarms(): IAlarm[] {
  const module = (layer: number): string => `decoder.layers.${layer}.mlp.linear_fc1`;
  const base = { rank: 1, microBatch: -1, expected: 0, samples: '', value: 0, cause: 0 } as const;
  const jumps = Array.from({ length: 60 }, (_, at): IAlarm => ({
    ...base,
    step: 228 + Math.floor(at / 6),
    rule: at % 5 === 0 ? 'drift' : 'jump',
    severity: at % 5 === 0 ? 'note' : 'warning',
    direction: 'backward',
    stat: 'grad',
    name: `${module(at % 6)}.weight`,
    statistic: 'rms',
    value: 8 + at,
    expected: 2.1,
    sentence: 'It is far above its usual level: an update of this size may undo training.',
    place: 100 + at
  }));
  const lost = Array.from({ length: 1340 }, (_, at): IAlarm => ({
    ...base,
    step: 320 + Math.floor(at / 18),
    rule: 'nonfinite',
    severity: 'critical',
    direction: at % 18 < 6 ? 'forward' : at % 18 < 12 ? 'backward' : 'optimizer',
    stat: at % 18 < 6 ? 'activation' : at % 18 < 12 ? 'grad' : 'param',
    name: at % 18 < 6 ? `${module((at + 2) % 6)}/output0` : `${module(5 - (at % 6))}.weight`,
    statistic: 'nan_count',
    value: 4096,
    sentence: 'Values are NaN: what is computed from them is lost.',
    place: at % 18
  }));
  const spike: IAlarm = {
    ...base,
    step: 226,
    rank: -1,
    rule: 'jump',
    severity: 'note',
    direction: 'loss',
    stat: 'scalar',
    name: 'loss',
    statistic: 'value',
    value: 4.2,
    expected: 2.3,
    sentence: 'The loss is above its usual level.',
    place: 50
  };
  return [spike, ...jumps, ...lost];
}
