import type { TrendOptions } from '../../../protocol/views.generated';
import type { IRunSource } from '../../../store/source';
import type { Control } from '../control';
import { selectControl } from '../select-control';
import { chip } from '../fields';
import type { Translate } from '../translate';

/** What of the options compares runs. */
export type RunsOptions = Pick<Required<TrendOptions>, 'align' | 'compare' | 'runs'>;

/** What the controls of a comparison are made of. */
export interface IRunsFacts {
  readonly source: Pick<IRunSource, 'id'>;
  readonly options: RunsOptions;
  /** Other runs; null where there are none to compare with. */
  readonly runs: readonly { readonly id: string; readonly name: string }[] | null;
  readonly choose: (options: Partial<RunsOptions>) => void;
}

/** Controls that choose other runs and say how they are shown; none where there are none to compare with. */
export function runsControls({ options, runs, source, choose }: IRunsFacts, t: Translate): Control[] {
  if (runs === null && options.runs.length === 0) {
    return [];
  }
  const known = runs ?? [];
  const nameOf = (id: string): string => known.find(each => each.id === id)?.name ?? id;
  return [
    {
      kind: 'select',
      id: 'runs',
      label: t('Compare with'),
      value: '',
      options: [
        { value: '', text: options.runs.length > 0 ? t('another run…') : t('no run') },
        ...known
          .filter(each => each.id !== source.id && !options.runs.includes(each.id))
          .map(each => ({ value: each.id, text: each.name }))
      ],
      change: id => id !== '' && choose({ runs: [...options.runs, id].slice(0, 8) })
    },
    ...options.runs.map(id =>
      chip(`run-${id}`, nameOf(id), t('Stop comparing with this run'), () =>
        choose({ runs: options.runs.filter(each => each !== id) })
      )
    ),
    ...(options.runs.length === 0
      ? []
      : [
          selectControl(
            'compare',
            t('Compare as'),
            options.compare,
            { overlay: t('overlay'), difference: t('difference'), ratio: t('ratio') },
            compare => choose({ compare })
          ),
          selectControl(
            'align',
            t('Align by'),
            options.align,
            { step: t('step'), tokens: t('tokens'), time: t('time') },
            align => choose({ align })
          )
        ])
  ];
}
