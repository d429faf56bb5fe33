import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { formatInteger } from '../../../charts/format';
import type { AlarmModel } from './alarm-model';

/** How many alarms the run has and what the first one says; opens its view. Nothing where there is none. */
export function AlarmLine(props: {
  model: AlarmModel;
  trans: TranslationBundle;
  open: () => void;
}): React.ReactElement | null {
  const { model, trans, open } = props;
  const { alarms, first } = model;
  if (first === null) {
    return null;
  }
  const text = trans._n('%1 alarm', '%1 alarms', alarms.length);
  return (
    <p>
      <button
        type="button"
        className="jp-MegalensNonFinite jp-MegalensAlarmLine"
        title={first.sentence}
        onClick={open}
      >
        {trans.__('%1: first at step %2, %3, %4', text, formatInteger(first.step), first.rule, first.name)}
      </button>
    </p>
  );
}
