import * as React from 'react';
import type { OpenPanelPart } from '../../../panel/shell/panel-part';
import { isOver } from '../../../store/is-over';
import { AlarmLine } from './alarm-line';
import { AlarmModel } from './alarm-model';
import { AlarmNews } from './alarm-news';

/** The alarms of the chosen run in the panel, and notifications of those of a live one. */
export const openAlarmPart: OpenPanelPart = ({ host, trans, setting }) => {
  const show = (run: string): void => void host.openView(run, { view: 'health' });
  const news = new AlarmNews(
    (run, sentence) => host.alarm(sentence, trans.__('Open Health'), () => show(run)),
    () => setting('tellAlarms') !== false,
    trans
  );
  return {
    open: (id, source) => {
      const model = new AlarmModel(source);
      model.changed.connect(() => {
        // A recorded run is no news, and nor is what a run that ended left behind.
        if (source.connection.kind === 'live' && !isOver(source)) {
          news.note(id, source.name, model.alarms);
        }
      });
      return {
        changed: model.changed,
        get alarms() {
          return model.alarms.length;
        },
        render: () => <AlarmLine model={model} trans={trans} open={() => show(id)} />,
        dispose: () => model.dispose()
      };
    },
    dispose: () => news.dispose()
  };
};
