"""Operations on stores. Only rmqctl has these operations; brokers do not."""
