import { formatBytes, formatInteger, formatNumber } from '../../../../charts';
import type { PipelineOptions } from '../../../../protocol/views.generated';
import type { Control } from '../../../../views/shared/control';
import type { Translate } from '../../../../views/shared/translate';
import { changedOf, sizeSlider, sliderControls, timeSlider, type ISlider } from './sliders';
import type { Setting } from './what-if';

/** The sliders of a plan, in order. */
export function whatIfControls(
  options: Required<PipelineOptions>,
  values: Readonly<Record<Setting, number>>,
  choose: (options: Partial<PipelineOptions>) => void,
  t: Translate
): Control[] {
  return sliderControls(
    slidersOf(t),
    options,
    values,
    change => choose(change as Partial<PipelineOptions>),
    t
  );
}

/** The settings that somebody changed: what takes them back puts them to these. */
export function changedSettings(
  options: Required<PipelineOptions>,
  defaults: Readonly<Record<string, unknown>>
): Partial<PipelineOptions> {
  const names = Object.keys(slidersOf(text => text)) as Setting[];
  return changedOf(names, options, defaults) as Partial<PipelineOptions>;
}

function slidersOf(t: Translate): Readonly<Record<Setting, ISlider>> {
  return {
    stages: { label: t('Stages'), least: 1, most: 64, scale: 'whole', say: formatInteger },
    micro_batches: { label: t('Micro-batches'), least: 1, most: 128, scale: 'whole', say: formatInteger },
    chunks: { label: t('Chunks'), least: 1, most: 8, scale: 'whole', say: formatInteger },
    forward: timeSlider(t('Forward')),
    input_gradient: timeSlider(t('Input gradient')),
    weight_gradient: timeSlider(t('Weight gradients')),
    optimizer: timeSlider(t('Optimizer')),
    latency: { ...timeSlider(t('Latency')), least: 0.001 },
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
    message_mb: sizeSlider(t('Message')),
    activation_mb: sizeSlider(t('Activations')),
    weight_mb: sizeSlider(t('Weights')),
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
