import { formatBytes, formatInteger } from '../../charts';
import type { Status } from '../../protocol/messages.generated';
import { isOver, type IRunSource, type SourceChange } from '../../store/source';
import type { IBriefFact } from '../shared/content';
import { meaningOf } from '../shared/glossary';
import { halfOf, measuredCost } from '../shared/measured-cost';
import { nothingYet, type IState } from '../shared/states';
import type { Translate } from '../shared/translate';
import type { IViewEnvironment } from '../shared/view-model';
import { WordsTile, type ISaid } from './words-tile';

/** What tracing costs a run, and what its recording may take. */
export class CostTile extends WordsTile {
  constructor(source: IRunSource, env: IViewEnvironment) {
    super(source, env, env.t('Cost and recording'), []);
  }

  override concerns(change: SourceChange): boolean {
    return change.kind === 'status';
  }

  protected async read(): Promise<ISaid | IState> {
    const { source, t } = this;
    const facts = source.status === null ? [] : costFacts(source.status, isOver(source), t);
    if (facts.length === 0) {
      return nothingYet(t('This run does not say what tracing costs.'), this.actions, t);
    }
    return {
      brief: { facts },
      said: [`${facts.map(({ name, value }) => `${name} ${value}`).join(', ')}.`]
    };
  }
}

/** What is known of a run's cost, as numbers with names. */
export function costFacts(status: Status, over: boolean, t: Translate): IBriefFact[] {
  const { budget, bytes_per_step: bytes = 0, dropped, probes, recording } = status;
  const measured = measuredCost(status);
  const lost = dropped ? dropped.producer + dropped.viewer + dropped.recorder : 0;
  const isRecorded = recording?.state === 'on' || recording?.state === 'closed';
  const { bytes: size = 0, limit_bytes: limit } = recording ?? {};
  const left = limit === undefined || bytes <= 0 ? null : Math.max(0, Math.floor((limit - size) / bytes));
  return [
    ...(measured
      ? [
          {
            name: t('tracing'),
            value: t('%1 % ± %2', measured.percent.toFixed(1), halfOf(measured).toFixed(1)),
            title: t('Part of the time of a step, with its 95 % interval'),
            warns: budget?.state === 'over'
          }
        ]
      : []),
    ...(budget ? [{ name: t('budget'), value: t('%1 %', formatInteger(budget.limit)) }] : []),
    ...(bytes > 0 ? [{ name: t('sent'), value: t('%1 a step', formatBytes(bytes)) }] : []),
    ...(isRecorded
      ? [
          {
            name: t('recording'),
            value:
              limit === undefined ? formatBytes(size) : t('%1 of %2', formatBytes(size), formatBytes(limit))
          }
        ]
      : recording
        ? [
            {
              name: t('recording'),
              value: recording.state === 'failed' ? t('failed') : t('off'),
              warns: true
            }
          ]
        : []),
    ...(left !== null && !over && isRecorded
      ? [
          {
            name: t('full in'),
            value: t('≈ %1 steps', formatInteger(left)),
            title: t('Then its oldest steps are given up for newer ones')
          }
        ]
      : []),
    ...(probes
      ? [
          {
            name: t('probes'),
            title: meaningOf('probes', t),
            value: `${probes.fired}/${probes.expected}`,
            warns: probes.fired < probes.expected
          }
        ]
      : []),
    ...(dropped ? [{ name: t('dropped'), value: formatInteger(lost), warns: lost > 0 }] : [])
  ];
}
