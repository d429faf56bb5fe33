import { formatBytes, formatInteger, formatNumber } from '../../../../../charts';
import { sizeSlider, timeSlider, type ISlider } from '../../../views/pipeline/sliders';
import type { Translate } from '../../../../../views/shared/translate';
import type { SplitSetting } from './split-what-if';

/** The sliders of devices and times, in order. */
export function splitSliders(t: Translate): Readonly<Record<SplitSetting, ISlider>> {
  const whole = (label: string, most: number, least = 1): ISlider => ({
    label,
    least,
    most,
    scale: 'whole',
    say: formatInteger
  });
  const memory = (label: string): ISlider => ({
    label,
    least: 0.01,
    most: 1000,
    scale: 'log',
    say: value => (value === 0 ? t('no limit') : formatBytes(value * 1e9)),
    none: null
  });
  return {
    devices: whole(t('Devices'), 64),
    others: whole(t('Others'), 64, 0),
    others_slower: {
      label: t('Others take'),
      least: 0.01,
      most: 100,
      scale: 'log',
      say: value => t('%1 times as long', formatNumber(value, 3))
    },
    forward: timeSlider(t('Forward, whole model')),
    backward: timeSlider(t('Backward, whole model')),
    micro_batches: whole(t('Micro-batches'), 128),
    model_layers: whole(t('Layers'), 128),
    most_tensor: whole(t('Tensor parallel up to'), 8),
    ahead: whole(t('Recomputed ahead'), 8),
    latency: { ...timeSlider(t('Latency')), least: 0.001 },
    bandwidth: {
      label: t('Bandwidth'),
      least: 0.01,
      most: 1000,
      scale: 'log',
      say: value => (value === 0 ? t('no limit') : t('%1 GB/s', formatNumber(value, 3)))
    },
    message_mb: sizeSlider(t('Message')),
    activation_mb: sizeSlider(t('Activations, whole model')),
    weight_mb: sizeSlider(t('Weights')),
    state_mb: sizeSlider(t('Training state')),
    memory_gb: memory(t('Memory')),
    others_memory_gb: memory(t('Memory of others')),
    uncertainty: {
      label: t('Times may be off by'),
      least: 0.1,
      most: 50,
      scale: 'log',
      say: value => t('%1 %', formatNumber(value, 3))
    }
  };
}
