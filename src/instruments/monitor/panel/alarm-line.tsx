import * as React from 'react';
import { formatInteger } from '../../../charts/format';
import type { IOpenRun } from '../../../panel/shell/open-run';
import type { PanelModel } from '../../../panel/shell/panel-model';

/** How many alarms the run has and what the first one says; opens its view. Nothing where there is none. */
export function AlarmLine(props: { model: PanelModel; open: IOpenRun }): React.ReactElement | null {
  const { model, open } = props;
  const { trans } = model;
  const { alarms, first } = open.alarms;
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
        onClick={() => void model.openAlarms()}
      >
        {trans.__('%1: first at step %2, %3, %4', text, formatInteger(first.step), first.rule, first.name)}
      </button>
    </p>
  );
}
