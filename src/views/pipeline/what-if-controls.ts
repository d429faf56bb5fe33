import { formatBytes, formatInteger, formatNumber } from '../../charts';
import type { PipelineOptions } from '../../protocol/views.generated';
import type { Control } from '../shared/control';
import type { Translate } from '../shared/translate';
import { timeWords } from '../timeline/span-words';
import type { Setting } from './what-if';

interface ISlider {
  readonly label: string;
  readonly least: number;
  readonly most: number;
  readonly scale: 'log' | 'whole';
  readonly say: (value: number) => string;
  /** What the option is at the left end of a logarithmic slider; 0 unless told. */
  readonly none?: null;
}

/** The sliders of a plan, in order: those that are not measured, or were changed, say so by what they show. */
export function whatIfControls(
  options: Required<PipelineOptions>,
  values: Readonly<Record<Setting, number>>,
  choose: (options: Partial<PipelineOptions>) => void,
  t: Translate
): Control[] {
  const sliders = slidersOf(t);
  return (Object.keys(sliders) as Setting[]).map(id => {
    const { label, say, none, ...scale } = sliders[id];
    const value = values[id];
    return {
      kind: 'slider',
      id,
      label,
      value,
      ...scale,
      text: say(value),
      title: options[id] === null ? t('As measured, or the usual. Drag to change it') : '',
      change: chosen => choose({ [id]: chosen === 0 && none === null ? null : chosen })
    };
  });
}

/** The settings that somebody changed: what takes them back puts them to these. */
export function changedSettings(
  options: Required<PipelineOptions>,
  defaults: Readonly<Record<string, unknown>>
): Partial<PipelineOptions> {
  const names = Object.keys(slidersOf(text => text)) as Setting[];
  return Object.fromEntries(
    names.filter(name => options[name] !== defaults[name]).map(name => [name, defaults[name]])
  );
}

function slidersOf(t: Translate): Readonly<Record<Setting, ISlider>> {
  const time = (label: string): ISlider => ({
    label,
    least: 0.01,
    most: 10_000,
    scale: 'log',
    say: timeWords
  });
  const size = (label: string): ISlider => ({
    label,
    least: 0.01,
    most: 100_000,
    scale: 'log',
    say: value => formatBytes(value * 1e6)
  });
  return {
    stages: { label: t('Stages'), least: 1, most: 64, scale: 'whole', say: formatInteger },
    micro_batches: { label: t('Micro-batches'), least: 1, most: 128, scale: 'whole', say: formatInteger },
    chunks: { label: t('Chunks'), least: 1, most: 8, scale: 'whole', say: formatInteger },
    forward: time(t('Forward')),
    input_gradient: time(t('Input gradient')),
    weight_gradient: time(t('Weight gradients')),
    optimizer: time(t('Optimizer')),
    latency: { ...time(t('Latency')), least: 0.001 },
    bandwidth: {
      label: t('Bandwidth'),
      least: 0.01,
      most: 1000,
      scale: 'log',
      say: value => (value === 0 ? t('no limit') : t('%1 GB/s', formatNumber(value, 3)))
    },
    jitter: {
      label: t('Jitter'),
      least: 0.1,
      most: 100,
      scale: 'log',
      say: value => t('%1 %', formatNumber(value, 3))
    },
    message_mb: size(t('Message')),
    activation_mb: size(t('Activations')),
    weight_mb: size(t('Weights')),
    memory_gb: {
      label: t('Memory'),
      least: 0.01,
      most: 1000,
      scale: 'log',
      say: value => (value === 0 ? t('no limit') : formatBytes(value * 1e9)),
      none: null
    }
  };
}
